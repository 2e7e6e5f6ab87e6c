"""Arguments and environment variables of a study that it may not give, found before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from servelab.core.errors import ConfigError
from servelab.engines.adapters import Engine
from servelab.study.configuration import Configuration, apply, baseline
from servelab.study.study import Candidate, Overrides, Study

EngineOf = Callable[[str], Engine]
"""The study's name of an engine → the engine."""


def refused_settings(study: Study, engine_of: EngineOf) -> Iterator[tuple[str, str]]:
    """(key, why with the fix) for each setting that Servelab sets itself, or that is given twice under two names.

    A candidate is looked at by itself, and with the baseline's settings if it may have them.
    """
    spelled: dict[tuple[str, str], str] = {}
    starts = {alias: _starts(study, alias) for alias in study.engines}
    for key, candidate, aliases in _candidates(study, engine_of):
        for alias in aliases:
            yield from _refused(key, candidate.model_copy(update={"engine": alias}), starts[alias], engine_of(alias))
            for name in candidate.arguments:
                first = spelled.setdefault((alias, engine_of(alias).names.of(name)), name)
                if first != name:
                    yield f"{key}.arguments.{name}", f"is `{first}` elsewhere in this study; use one name for it"


def _candidates(study: Study, engine_of: EngineOf) -> Iterator[tuple[str, Candidate, list[str]]]:
    """The baseline and all candidates: key, candidate, engines that it may run on by the study's names."""
    yield "baseline", study.baseline, [str(study.baseline.engine)]
    for position, stage in enumerate(study.stages):
        wanted = stage.when.get("engine")
        possible = [alias for alias in study.engines if wanted in (None, engine_of(alias).name)]
        for number, candidate in enumerate(stage.candidates):
            key = f"stages.{position} ({stage.name}).candidates.{number}"
            yield key, candidate, [candidate.engine] if candidate.engine else possible


def _starts(study: Study, alias: str) -> list[Configuration]:
    """What a candidate on an engine of the study may begin with: nothing, and the baseline on its own engine."""
    first = baseline(study).configuration
    alone = apply(first, Overrides(engine=alias)).model_copy(
        update={"options": {}, "arguments": {}, "environment_variables": {}}
    )
    return [alone, first] if alias == study.baseline.engine else [alone]


def _refused(
    key: str, candidate: Candidate, starts: Iterable[Configuration], engine: Engine
) -> Iterator[tuple[str, str]]:
    """The first wrong setting of a candidate on its engine."""
    for start in starts:
        whole = apply(start, candidate)
        options = {name: value for name, value in whole.options.items() if name in engine.options}
        try:
            arguments = engine.refused_arguments(options, whole.arguments)
        except ConfigError:  # options that contradict each other: such a candidate is refused where it is planned
            arguments = {}
        for kind, refused in (
            ("arguments", arguments),
            ("environment_variables", engine.refused_variables(options, whole.environment_variables)),
        ):
            for name, why in refused.items():
                with_baseline = "" if name in getattr(candidate, kind) else " (the baseline has it)"
                yield f"{key}.{kind}.{name}", f"{why}{with_baseline} (engine {engine.name})"
                return
