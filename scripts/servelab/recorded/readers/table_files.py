"""Reads the table of each tool, `tools/<tool>.yaml`, into its readers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from servelab.recorded.readers.figures import FigureForm
from servelab.recorded.readers.formulas import DefinedBy
from servelab.recorded.readers.results import READERS, Reader
from servelab.recorded.readers.shapes import SHAPES

_FACTS = ("within", "swept_by", "each", "version_at", "settings_at", "cell_units", "heads")
_SETS = ("markers", "ignored", "partial")
_ROWS = ("rules", "within_run", "required")


def load_tables() -> None:
    """Registers the readers of all tools. What a table says above its readers holds for each that does not say it."""
    for path in sorted((Path(__file__).parent / "tools").glob("*.yaml")):
        common = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, own in common.pop("readers").items():
            READERS.register(name, _reader({**common, **own}))


def _reader(said: dict[str, Any]) -> Reader:
    fold = bool(said.get("fold"))
    facts = {key: said.pop(key) for key in _FACTS if key in said}
    found = {
        **said,
        **{key: frozenset(said[key]) for key in _SETS if key in said},
        **{key: tuple(said[key]) for key in _ROWS if key in said},
        **{key: _forms(said.get(key, {}), fold=fold) for key in ("figures", "families")},
        "following": tuple(map(frozenset, said.get("following", ()))),
        "percentiles": frozenset(said["percentiles"]) if "percentiles" in said else None,
        "definitions": {metric: _defined(text) for metric, text in said.get("definitions", {}).items()},
        "shape": SHAPES[said.get("shape", "rows")],
        "facts": facts,
    }
    return Reader(**found)


def _forms(rows: Mapping[str, str], *, fold: bool) -> dict[str, FigureForm]:
    return {name.casefold() if fold else name: FigureForm.parsed(row) for name, row in rows.items()}


def _defined(said: str | list[str]) -> DefinedBy:
    """A text, or the releases that define a metric so and a text."""
    return DefinedBy(said) if isinstance(said, str) else DefinedBy(said[1], said[0])
