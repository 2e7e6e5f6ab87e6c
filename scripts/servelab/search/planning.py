"""Makes plans: pure functions of the study, the stage and the incumbent, which read no file and start no process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from servelab.core.errors import ConfigError
from servelab.core.identity import content_id
from servelab.engines.server_identity import render_served, serve_of
from servelab.study.configuration import (
    Configuration,
    Incumbent,
    Load,
    Variant,
    apply,
    baseline,
    changes_of,
    key_of,
    may_change_answers,
)
from servelab.study.plan import ANSWERS, PROOF, SEARCH, Plan, PlannedCandidate, PlannedRun
from servelab.study.project import Project
from servelab.study.spec_builder import RunSpecs
from servelab.study.study import CONFIRM, Stage, Study

ProbeOf = Callable[[Configuration], float | None]
"""A configuration → the load that its search for capacity sends first (`RunSpec.incumbent_capacity`)."""


def plan_stage(project: Project, stage_name: str, incumbent: Incumbent, probe_of: ProbeOf | None = None) -> Plan:
    """The plan of a stage of the study that starts from `incumbent`."""
    stage = next(stage for stage in project.study.stages if stage.name == stage_name)
    variants = [
        Variant(candidate.name, apply(incumbent.configuration, candidate), changes_of(candidate))
        for candidate in stage.candidates
    ]
    obstacle = obstacle_to(project.study, stage, incumbent.configuration)
    title = stage.title or stage.name
    return make_plan(project, stage.name, title, incumbent, variants, obstacle, probe_of=probe_of)


def make_plan(
    project: Project,
    stage: str,
    title: str,
    incumbent: Incumbent,
    variants: Iterable[Variant],
    obstacle: str | None = None,
    incumbent_starts: int | None = None,
    *,
    probe_of: ProbeOf | None = None,
) -> Plan:
    """A plan on the workload that decides: the incumbent, and the variants without repeated configurations.

    The incumbent is measured on `incumbent_starts` server starts (default: `search.incumbent_starts`), where there is
    something to compare it with. An `obstacle` says why the stage does not apply; the plan then has only the incumbent.
    """
    loads, specs = [Load(workload=project.study.objective.on)], RunSpecs(project)
    starts = (incumbent_starts or project.study.search.incumbent_starts) if obstacle is None else 1
    first = Variant(incumbent.candidate, incumbent.configuration, {}, starts)
    curve = [Load(workload=name) for name in project.study.searched]
    points = [load for load in curve if load not in loads]
    asks = project.study.answers is not None
    labels = _starts(SEARCH, first.starts)
    candidates = [_planned(project, first, True, loads, labels, specs, points, asks=asks, probe_of=probe_of)]
    seen = {key_of(incumbent.configuration)}
    for variant in variants if obstacle is None else []:
        key = key_of(variant.configuration)
        if key not in seen:  # a stage may list an earlier winner again
            seen.add(key)
            labels = _starts(SEARCH, variant.starts)
            candidates.append(
                _planned(project, variant, False, loads, labels, specs, points, asks=asks, probe_of=probe_of)
            )
    return Plan(
        study=project.study.study,
        stage=stage,
        title=title,
        applies=obstacle is None,
        reason=obstacle or "",
        candidates=candidates,
        baseline_answers=_answers_of_baseline(project, specs) if asks else [],
    )


def plan_confirm(project: Project, winner: Incumbent, pairs: int, stage: str = CONFIRM) -> Plan:
    """The plan of a proof: baseline and winner on every workload, on `pairs` fresh server starts each.

    If the winner is the baseline, there is nothing to prove: it is measured on every workload, on one start.
    """
    workloads = [Load(workload=workload) for workload in project.study.workloads]
    start, specs = baseline(project.study), RunSpecs(project)
    is_changed = key_of(winner.configuration) != key_of(start.configuration)
    # another winner has labels of its own, so that its pairs are measured in jobs of their own
    labels = (
        _starts(f"{PROOF}{content_id(key_of(winner.configuration))[:6]}-", pairs) if is_changed else _starts(SEARCH, 1)
    )
    sides = [Variant("baseline", start.configuration, {})]
    if is_changed:
        sides.append(Variant("winner", winner.configuration, {}))
    asks = project.study.answers is not None
    candidates = [
        _planned(project, side, position == 0, workloads, labels, specs, asks=asks, asks_all=True)
        for position, side in enumerate(sides)
    ]
    return Plan(
        study=project.study.study,
        stage=stage,
        title="Proof: baseline and winner on every workload",
        applies=True,
        reason="",
        candidates=candidates,
        baseline_answers=candidates[0].answers,
        proposed=winner.candidate,
    )


def _answers_of_baseline(project: Project, specs: RunSpecs) -> list[PlannedRun]:
    """The runs of the baseline that are asked questions in the search."""
    side = Variant("baseline", baseline(project.study).configuration, {})
    labels = _starts(SEARCH, project.study.search.incumbent_starts)
    return _planned(project, side, True, [], labels, specs, asks=True).answers


def _starts(kind: str, count: int) -> list[str]:
    return [f"{kind}{number}" for number in range(count)]


def obstacle_to(study: Study, stage: Stage, configuration: Configuration) -> str | None:
    """Why a stage does not apply to the incumbent; None if it does."""
    facts: dict[str, object] = {
        "engine": study.engines[configuration.engine].engine or configuration.engine,
        "model": configuration.model,
        "accelerators": configuration.accelerators,
        "hardware.per_node": study.hardware.per_node,
        **{f"options.{name}": value for name, value in configuration.options.items()},
    }
    for key, wanted in stage.when.items():
        if facts.get(key) != wanted:
            return f"applies if {key} is {wanted}; the incumbent's is {facts.get(key)}"
    return None


def _planned(
    project: Project,
    variant: Variant,
    is_incumbent: bool,
    loads: Sequence[Load],
    starts: Sequence[str],
    specs: RunSpecs,
    points: Sequence[Load] = (),
    *,
    asks: bool = False,
    asks_all: bool = False,
    probe_of: ProbeOf | None = None,
) -> PlannedCandidate:
    """A candidate with its runs under `loads`, and at `points` of the curve that decides.

    With `asks` the study has questions: they are asked of a candidate that may answer otherwise than the baseline, or
    with `asks_all` of any. Stages list one configuration many times, so its runs are made once.
    """
    named = [tuple(load.workload for load in each) for each in (loads, points)]
    probe = probe_of(variant.configuration) if probe_of else None
    key = (key_of(variant.configuration), *named, tuple(starts), asks, asks_all, probe)
    if key not in project.planned:
        made = _made(project, variant, loads, starts, specs, points, probe, asks=asks, asks_all=asks_all)
        project.planned[key] = made
    own = {"candidate": variant.name, "is_incumbent": is_incumbent, "changes": variant.changes}
    return project.planned[key].model_copy(update=own)


def _made(
    project: Project,
    variant: Variant,
    loads: Sequence[Load],
    starts: Sequence[str],
    specs: RunSpecs,
    points: Sequence[Load],
    probe: float | None,
    *,
    asks: bool,
    asks_all: bool,
) -> PlannedCandidate:
    """See `_planned`; `probe` is of `ProbeOf`."""
    configuration = variant.configuration
    asks = asks and (asks_all or _is_asked(project, configuration))
    engine = project.engine(configuration.engine)
    model_id = project.study.model.variant_id(configuration.model)
    refused, command = None, ""
    runs: list[PlannedRun] = []
    others: list[PlannedRun] = []
    asked: list[PlannedRun] = []
    try:
        entry = project.study.engines[configuration.engine]
        engine.check_options(configuration.options, entry.version)
        command = engine.display_command(
            model_id,
            configuration.options,
            configuration.arguments,
            configuration.environment_variables,
            joined=entry.joined_values,
            nodes=project.study.hardware.nodes,
            count=configuration.accelerators,
        )
        # raises ConfigError for what the engine cannot serve
        options, arguments, hardware = configuration.options, configuration.arguments, project.study.hardware
        serve = serve_of(engine, model_id, options, arguments, configuration.accelerators, hardware.nodes)
        served = render_served(engine, serve, entry.runtime, hardware.device)
        for start in starts:
            for into, load in [*((runs, load) for load in loads), *((others, load) for load in points)]:
                run_id, spec = specs(configuration, load, served, start, probe)
                level = project.study.level_of(load.workload) if points else None
                into.append(PlannedRun(workload=load.workload, start=start, run_id=run_id, spec=spec, level=level))
            if asks:
                run_id, spec = specs.answers(configuration, served, start)
                asked.append(PlannedRun(workload=ANSWERS, start=start, run_id=run_id, spec=spec))
    except ConfigError as error:
        refused = str(error)
    return PlannedCandidate(
        candidate=variant.name,
        is_incumbent=False,
        configuration=configuration,
        changes=variant.changes,
        command=command,
        refused=refused,
        runs=runs,
        points=others,
        answers=asked,
    )


def _is_asked(project: Project, configuration: Configuration) -> bool:
    """Whether a candidate of the search is asked the study's questions; the baseline always is."""
    study, start = project.study, baseline(project.study).configuration
    if study.answers is None:
        return False
    is_baseline = key_of(configuration) == key_of(start)
    return is_baseline or study.answers.of == "all" or may_change_answers(start, configuration, project.engine)
