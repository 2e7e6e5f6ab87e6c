"""In what two configurations differ as their engine serves them, not as they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servelab.engines.accelerator_boards import board_of
from servelab.engines.adapters import ENGINES
from servelab.study.configuration import Configuration
from servelab.study.study import Study

Changes = Mapping[str, tuple[Any, Any]]
"""Setting → (before, after); None for what is not known."""


def effective_changes(
    study: Study, before: Configuration, after: Configuration, release: str | None = None
) -> Changes | None:
    """The settings in which the second differs; None if engine, weights or variables differ, which says enough.

    The second is served by `release`; None is the study's.
    """
    if before.engine != after.engine or before.model != after.model:
        return None
    if before.environment_variables != after.environment_variables:
        return None
    entry, hardware = study.engines[before.engine], study.hardware
    engine = ENGINES.get(entry.engine or before.engine)
    if engine.already_runs:
        return None
    board = board_of(hardware.accelerator, is_cpu=hardware.device == "cpu")
    served = ((entry.version, before), (release or entry.version, after))
    old, new = (engine.effective(version, board, each.options, each.arguments) for version, each in served)
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


def shown(changes: Changes) -> str:
    """`max_num_seqs 2 → 8`; an unknown value is the engine's own."""
    words = {None: "the engine's own", True: "on", False: "off"}

    def word(value: Any) -> str:
        return words[value] if value is None or isinstance(value, bool) else str(value)

    return ", ".join(f"{name} {word(old)} → {word(new)}" for name, (old, new) in changes.items())
