"""Makes plans: pure functions of the study, the stage and the incumbent, which read no file and start no process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from servelab.core.errors import ConfigError
from servelab.core.identity import content_id
from servelab.engines.accelerator_boards import board_of
from servelab.engines.adapters import ENGINES
from servelab.engines.balancers import planned_balancer
from servelab.engines.server_identity import render_served, serve_of
from servelab.study.configuration import (
    Configuration,
    Incumbent,
    Load,
    Variant,
    apply,
    baseline,
    changes_of,
    check_replicas,
    key_of,
    may_change_answers,
    on_whole_node,
)
from servelab.study.plan import ANSWERS, PROOF, SEARCH, Plan, PlannedCandidate, PlannedRun
from servelab.study.project import Project
from servelab.study.spec_builder import named_spec
from servelab.study.study import CONFIRM, Stage, Study


def plan_stage(project: Project, stage_name: str, incumbent: Incumbent) -> Plan:
    """The plan of a stage of the study that starts from `incumbent`."""
    stage = next(stage for stage in project.study.stages if stage.name == stage_name)
    variants = [
        Variant(candidate.name, apply(incumbent.configuration, candidate), changes_of(candidate))
        for candidate in stage.candidates
    ]
    nothing = None if stage.candidates else "nothing is proposed"
    obstacle = obstacle_to(project.study, stage, incumbent.configuration) or nothing
    title = stage.title or stage.name
    return make_plan(project, stage.name, title, incumbent, variants, obstacle)


def make_plan(
    project: Project,
    stage: str,
    title: str,
    incumbent: Incumbent,
    variants: Iterable[Variant],
    obstacle: str | None = None,
    incumbent_starts: int | None = None,
) -> Plan:
    """A plan on the workload that decides: the incumbent, and the variants without repeated configurations.

    The incumbent is measured on `incumbent_starts` server starts (default: `search.incumbent_starts`), where there is
    something to compare it with. An `obstacle` says why the stage does not apply; the plan then has only the incumbent.
    """
    study = project.study
    starts = (incumbent_starts or study.search.incumbent_starts) if obstacle is None else 1
    first = Variant(incumbent.candidate, incumbent.configuration, {}, starts)
    unique: dict[str, Variant] = {}
    for each in (first, *(variants if obstacle is None else ())):
        unique.setdefault(key_of(each.configuration), each)  # a stage may list an earlier winner again
    candidates = [
        _planned(project, each, _searched(project, each), is_incumbent=each is first) for each in unique.values()
    ]
    asked = StartsOfCandidate(asked=_labels(SEARCH, study.search.incumbent_starts) if study.answers else ())
    return Plan(
        study=study.study,
        stage=stage,
        title=title,
        applies=obstacle is None,
        reason=obstacle or "",
        candidates=candidates,
        baseline_answers=_planned(project, Variant("baseline", baseline(study).configuration, {}), asked).answers,
    )


def plan_confirm(
    project: Project, winner: Incumbent, pairs: int, stage: str = CONFIRM, lost: Mapping[str, int] | None = None
) -> Plan:
    """The plan of a proof: baseline and winner, on `pairs` fresh server starts each.

    Each start serves the workload that decides. Others, and the questions, are on the first of them only
    (`Study.pairs_on`), and on one more for each of these pairs that does not count there, as in `lost`. If the winner
    is the baseline, there is nothing to prove: it is measured on every workload, on one start.
    """
    study = project.study
    title = f"Proof by {study.of_stage(stage).objective.name}" if study.second else "Proof"
    sides = [Variant("baseline", baseline(study).configuration, {}), Variant("winner", winner.configuration, {})]
    if key_of(winner.configuration) == key_of(sides[0].configuration):
        sides, labels = sides[:1], _labels(SEARCH, 1)
    else:  # another winner has labels of its own, so that its pairs are measured in jobs of their own
        labels = _labels(f"{PROOF}{content_id(key_of(winner.configuration))[:6]}-", pairs)
    most = {name: study.pairs_on(name) + (lost or {}).get(name, 0) for name in study.workloads}
    most[study.objective.on] = len(labels)
    loads = tuple(
        (label, tuple(name for name, count in most.items() if number < count)) for number, label in enumerate(labels)
    )
    starts = StartsOfCandidate(loads, asked=labels[: study.proof.pairs] if study.answers else ())
    sides = [side._replace(configuration=on_whole_node(study, side.configuration)) for side in sides]
    candidates = [_planned(project, side, starts, is_incumbent=side is sides[0]) for side in sides]
    return Plan(
        study=study.study,
        stage=stage,
        title=f"{title}: baseline and winner on every workload",
        applies=True,
        reason="",
        candidates=candidates,
        baseline_answers=candidates[0].answers,
        proposed=winner.candidate,
    )


def proof_size(project: Project) -> int:
    """Requests that the first pairs of a proof send: see `PlannedRun.load_size`."""
    study = project.study
    asked = study.answers.num_questions if study.answers else 0
    sizes = {
        name: int(project.workloads[name].parameters["num_requests"]) * study.protocol_of(name).rounds
        for name in study.workloads
    }
    pairs = {name: min(study.pairs_on(name), study.proof.pairs) for name in sizes}
    return 2 * len(study.proofs) * (study.proof.pairs * asked + sum(pairs[name] * size for name, size in sizes.items()))


class StartsOfCandidate(NamedTuple):
    """The server starts of a candidate, by their labels."""

    loads: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Each start with the workloads that it serves."""
    points: tuple[str, ...] = ()
    """Further points of the curve that decides, on each of these starts."""
    asked: tuple[str, ...] = ()
    """The starts that are asked the study's questions."""


def _searched(project: Project, variant: Variant) -> StartsOfCandidate:
    """The starts of a candidate of the search; the baseline is asked, and those that may answer otherwise."""
    study, labels = project.study, _labels(SEARCH, variant.starts)
    on = study.objective.on
    points = tuple(name for name in study.searched if name != on)
    start, configuration = baseline(study).configuration, variant.configuration
    is_asked = study.answers is not None and (
        study.answers.of == "all"
        or key_of(configuration) == key_of(start)
        or may_change_answers(start, configuration, project.engine)
    )
    asked = labels if is_asked else ()
    return StartsOfCandidate(tuple((label, (on,)) for label in labels), points, asked)


def _labels(kind: str, count: int) -> tuple[str, ...]:
    return tuple(f"{kind}{number}" for number in range(count))


def obstacle_to(study: Study, stage: Stage, configuration: Configuration) -> str | None:
    """Why a stage does not apply to the incumbent; None if it does."""
    facts: dict[str, object] = {
        "engine": study.engines[configuration.engine].engine or configuration.engine,
        "model": configuration.model,
        "accelerators": configuration.accelerators,
        "replicas": configuration.replicas,
        "hardware.per_node": study.hardware.per_node,
        **{f"options.{name}": value for name, value in configuration.options.items()},
    }
    for key, wanted in stage.when.items():
        if facts.get(key) != wanted:
            return f"applies if {key} is {wanted}; the incumbent's is {facts.get(key)}"
    return None


def _planned(
    project: Project, variant: Variant, starts: StartsOfCandidate, *, is_incumbent: bool = False
) -> PlannedCandidate:
    """A candidate with its runs. Stages list one configuration many times, so its runs are made once."""
    key = (key_of(variant.configuration), starts)
    if key not in project.planned:
        project.planned[key] = _made(project, variant, starts)
    own = {"candidate": variant.name, "is_incumbent": is_incumbent, "changes": variant.changes}
    return project.planned[key].model_copy(update=own)


def _made(project: Project, variant: Variant, starts: StartsOfCandidate) -> PlannedCandidate:
    """See `_planned`."""
    configuration, study = variant.configuration, project.study
    engine, entry = project.engine(configuration.engine), study.engines[configuration.engine]
    model_id = study.model.variant_id(configuration.model)
    command, refused = "", None
    runs: list[PlannedRun] = []
    points: list[PlannedRun] = []
    answers: list[PlannedRun] = []
    options, arguments, hardware = configuration.options, configuration.arguments, study.hardware
    try:
        check_replicas(study, engine, configuration)
        engine.check_options(options, entry.version)
        command = engine.display_command(
            model_id, options, arguments, configuration.environment_variables, nodes=hardware.nodes
        )
        # raises ConfigError for what the engine cannot serve
        serve = serve_of(engine, model_id, options, arguments, configuration.per_server, hardware.nodes)
        balancer = planned_balancer(configuration.balancer, configuration.replicas)
        served = render_served(engine, serve, entry.runtime, hardware.device, balancer)

        def run_of(start: str, name: str) -> PlannedRun:
            run_id, spec = named_spec(project, configuration, Load(workload=name), served, start)
            level = study.level_of(name) if starts.points else None
            return PlannedRun(workload=name, start=start, run_id=run_id, spec=spec, level=level)

        runs += [run_of(start, name) for start, names in starts.loads for name in names]
        points += [run_of(start, name) for start, _ in starts.loads for name in starts.points]
        for start in starts.asked:
            run_id, spec = named_spec(project, configuration, None, served, start)
            answers.append(PlannedRun(workload=ANSWERS, start=start, run_id=run_id, spec=spec))
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
        points=points,
        answers=answers,
    )


Changes = Mapping[str, tuple[Any, Any]]
"""Setting → (before, after); None for what is not known."""


def effective_changes(
    study: Study, before: Configuration, after: Configuration, release: str | None = None
) -> Changes | None:
    """The settings in which the second differs; None if engine, weights or variables differ, which says enough.

    The second is served by `release`; None is the study's.
    """
    if any(getattr(before, part) != getattr(after, part) for part in ("engine", "model", "environment_variables")):
        return None
    entry, hardware = study.engines[before.engine], study.hardware
    engine = ENGINES.get(entry.engine or before.engine)
    if engine.already_runs:
        return None
    board = board_of(hardware.accelerator, is_cpu=hardware.device == "cpu")
    served = ((entry.version, before), (release or entry.version, after))
    old, new = (engine.effective(version, board, each.options, each.arguments) for version, each in served)
    for name in ("accelerators", "replicas", "balancer"):
        old[name], new[name] = getattr(before, name), getattr(after, name)
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


def shown(changes: Changes) -> str:
    """`max_num_seqs 2 → 8`; an unknown value is the engine's own."""
    words = {"None": "the engine's own", "True": "on", "False": "off"}
    named = ((name, *(words.get(str(value), value) for value in values)) for name, values in changes.items())
    return ", ".join(f"{name} {old} → {new}" for name, old, new in named)
