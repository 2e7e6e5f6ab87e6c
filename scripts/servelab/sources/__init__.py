"""Where files and models come from; each kind of source is one file that registers itself.

A source of *files* is a type of `config/datasets.yaml` that can fetch pinned content. A source of *models* is a
function that brings what a model source of `servelab.spec` names, and one that asks whether it would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servelab.content import Content
from servelab.registry import Registry
from servelab.spec import Strict


class FileSource(Strict):
    """Base of every place a pinned file can be fetched from; `kind` names it in the configuration."""

    def fetch(self, content: Content, destination: Path) -> None:
        """Puts the pinned content at `destination`; `ServelabError` where this source cannot."""
        raise NotImplementedError

    def describe(self) -> str:
        """The source in one line, for messages and provenance."""
        raise NotImplementedError


@dataclass(frozen=True)
class Probe:
    """What a source of models answers, without the model being fetched."""

    there: bool | None
    """Whether it would give the model; None where that cannot be told from here."""
    saw: str
    action: str | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    """Size in bytes of each file of it, where known."""
    config: Mapping[str, Any] | None = None
    """Its config.json, where it is known without fetching weights."""


ProbeModel = Callable[[Any, float], Probe]
"""(model source, time limit in seconds) → what it answers."""
FetchModel = Callable[[Any, Path], Path]
"""(model source, folder to fetch into) → the model's file or folder."""

FILE_SOURCES: Registry[type[FileSource]] = Registry("source")
MODEL_SOURCES: Registry[FetchModel] = Registry("model source")
MODEL_PROBES: Registry[ProbeModel] = Registry("model source")

FILE_SOURCES.load(__name__)
