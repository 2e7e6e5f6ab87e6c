"""A file or model that is already on this machine or on a shared file system."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from servelab.assets.pinned_file import Content, blocks_of, holds, write_pinned
from servelab.assets.sources import FILE_SOURCES, MODEL_PROBES, MODEL_SOURCES, FileSource, Probe
from servelab.core.errors import ServelabError
from servelab.core.run_spec import PathSource


class PathFile(FileSource):
    """A file on this machine, copied."""

    kind: Literal["path"] = "path"
    path: str = Field(description="Absolute path of the file.", pattern="^/")

    def fetch(self, content: Content, destination: Path) -> None:
        if holds(destination, content):
            return
        try:
            with Path(self.path).open("rb") as file:
                write_pinned(destination, content, blocks_of(file))
        except OSError as error:
            raise ServelabError(f"{self.path}: {error.strerror}") from None

    def describe(self) -> str:
        return self.path


def fetch_model(source: PathSource, folder: Path) -> Path:
    """The path itself: models are large, so they are not copied. `ServelabError` if it does not exist."""
    path = Path(source.path)
    if not path.is_absolute():
        raise ServelabError(f"model path `{path}` is not absolute")
    if not path.exists():
        raise ServelabError(f"model path `{path}`: no such file or folder")
    return path


def probe_model(source: PathSource, timeout_s: float) -> Probe:
    """Checks that the file, or every file of the folder, can be read."""
    path = Path(source.path)
    try:
        files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
        for file in files:
            file.open("rb").close()
    except OSError as error:
        action = "copy the model there, or name another path in the study"
        return Probe(False, f"{error.filename}: {error.strerror}", action)
    sizes = {file.name: file.stat().st_size for file in files}
    return Probe(True, f"{path} is there", files=sizes)


FILE_SOURCES.register("path", PathFile)
MODEL_SOURCES.register("path", fetch_model)
MODEL_PROBES.register("path", probe_model)
