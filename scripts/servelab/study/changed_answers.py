"""Which candidates may answer otherwise than the baseline, by what they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from servelab.engines.adapters import Engine
from servelab.study.configuration import Configuration

KINDS = ("options", "arguments", "environment_variables")


def may_change_answers(before: Configuration, after: Configuration, engine_of: Callable[[str], Engine]) -> bool:
    """Whether `after` has another engine or other weights, or differs in what its adapter says may change answers."""
    if (before.engine, before.model) != (after.engine, after.model):
        return True
    engine = engine_of(after.engine)
    return any(engine.changes_answers(name) for name in _different(before, after))


def should_keep_answers(before: Configuration, after: Configuration, engine_of: Callable[[str], Engine]) -> bool:
    """Whether `after` should give the same greedy answers, though it may differ in settings such as a draft model."""
    if (before.engine, before.model) != (after.engine, after.model):
        return False
    engine = engine_of(after.engine)
    return all(engine.should_keep_answers(name) for name in _different(before, after))


def _different(before: Configuration, after: Configuration) -> Iterator[str]:
    """Names of the settings in which two configurations differ."""
    for kind in KINDS:
        old: Mapping[str, Any] = getattr(before, kind)
        new: Mapping[str, Any] = getattr(after, kind)
        missing = object()
        yield from (name for name in {**old, **new} if old.get(name, missing) != new.get(name, missing))
