"""What studies set for the servers of one environment, as far as that is known before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from servelab.core.identity import canonical_json
from servelab.engines.environment_facts import Setting
from servelab.study.configuration import Configuration, apply, baseline
from servelab.study.project import Project
from servelab.study.study import Overrides


def served_settings(used: Iterable[tuple[Project, str]]) -> list[Setting]:
    """Different settings of studies for engines, by the studies' names for these: baseline and candidates, sorted.

    A candidate is taken as the baseline with its changes. Later stages start from winners that are not known yet, which
    adds no option and no value.
    """
    found = {
        canonical_json([each.options, each.arguments, each.environment_variables]): each
        for project, alias in used
        for each in _configurations(project, alias)
    }
    return [Setting(each.options, each.arguments, each.environment_variables) for _, each in sorted(found.items())]


def _configurations(project: Project, alias: str) -> Iterator[Configuration]:
    start = apply(baseline(project.study).configuration, Overrides(engine=alias))
    yield start
    for stage in project.study.stages:
        for candidate in stage.candidates:
            if (candidate.engine or stage.when.get("engine", alias)) == alias:
                yield apply(start, candidate)
