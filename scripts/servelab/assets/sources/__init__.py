"""Sources of files (`config/datasets.yaml`) and of models; each kind of source is one file that registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servelab.assets.pinned_file import Content
from servelab.core.registry import Registry
from servelab.core.run_spec import Strict


class FileSource(Strict):
    """Base of every source of a pinned file; `kind` is its name in the configuration."""

    def fetch(self, content: Content, destination: Path) -> None:
        """Fetches the pinned content to `destination`; `ServelabError` if this source does not have it."""
        raise NotImplementedError

    def describe(self) -> str:
        """The source in one line, for messages and provenance."""
        raise NotImplementedError


@dataclass(frozen=True)
class Probe:
    """A source's answer about a model, without fetching the model."""

    there: bool | None
    """Whether the source has the model for this account; None if that is unknown from here."""
    saw: str
    action: str | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    """File name → size in bytes, if known."""
    config: Mapping[str, Any] | None = None
    """The model's config.json, if it can be read without fetching weights."""


ProbeModel = Callable[[Any, float], Probe]
"""(model source, time limit in seconds) → its answer."""
FetchModel = Callable[[Any, Path], Path]
"""(model source, folder to fetch into) → the model's file or folder."""

FILE_SOURCES: Registry[type[FileSource]] = Registry("source")
MODEL_SOURCES: Registry[FetchModel] = Registry("model source")
MODEL_PROBES: Registry[ProbeModel] = Registry("model source")

FILE_SOURCES.load(__name__)
