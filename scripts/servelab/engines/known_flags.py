"""Flags of releases that come with Servelab, so that a study can be checked where its engine is not installed.

`flags/<engine>-<release>.txt` has one flag per line; the `.yaml` of the same name has kind and choices of those flags
and settings that options set. Both were read from the release's own parser or source (`Engine.checked`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servelab.engines.adapters import Engine
from servelab.engines.options import Checked

FLAGS = Path(__file__).parent / "flags"


@dataclass(frozen=True)
class KnownFlags:
    """The flags of one release."""

    flags: frozenset[str]
    is_exact: bool
    """Whether the release's own parser was read; otherwise flags may be missing."""


def list_name(engine: Engine, checked: Checked) -> str:
    """Name of a release's files in `flags`."""
    return checked.flags or f"{engine.name}-{checked.release}"


def listed_flags(engine: Engine, version: str) -> KnownFlags | None:
    """The flags of exactly this release; None if there is no list of it."""
    if own := engine.own_flags():
        return KnownFlags(own, is_exact=True)
    for checked in engine.checked:
        file = FLAGS / f"{list_name(engine, checked)}.txt"
        if checked.release == version and file.exists():
            return KnownFlags(frozenset(file.read_text(encoding="utf-8").split()), checked.how == "parser")
    return None
