"""The comparison of two studies as a table: schemas.COMPARISON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import Basis
from servelab.metrics.statistics import Interval, mean_ci95, ratio_ci95
from servelab.metrics.tables import comparison_schemas as compared_schemas
from servelab.report.compare.facts import NOT_RECORDED, FactDifference, blocking, differences, key
from servelab.report.compare.sides import JudgedRun, StudyRun, StudySide
from servelab.search.decide import StartNoise
from servelab.search.verdict import judge, machine_changes, noise_of_sides
from servelab.study.project import SearchedStudy


@dataclass(frozen=True)
class RunPair:
    """Two runs, or one without a counterpart."""

    a: StudyRun | None
    b: StudyRun | None
    differences: list[FactDifference]
    """Fields in which the two differ; for one alone, its differences from the most similar run of the other study."""
    blocking: list[FactDifference]
    """Those of the differences that make the two not comparable."""
    nearest: StudyRun | None = None
    """For one alone, the most similar run."""

    @property
    def is_comparable(self) -> bool:
        """Whether they differ only in what a comparison may be about."""
        return self.a is not None and self.b is not None and not self.blocking


def pair_runs(a: Sequence[StudyRun], b: Sequence[StudyRun], *, answers: bool = False) -> list[RunPair]:
    """Puts every run into one pair: comparable runs first, each with the run that differs least from it.

    Of the others, runs with the same candidate's name and workload form pairs, and the rest have no counterpart.
    `answers` may also differ in their configuration.
    """
    found = _comparable(a, b, answers)
    found += _namesakes(*_left(a, b, found), answers)
    alone_a, alone_b = _left(a, b, found)
    found += [_run_alone(run, None, b, answers) for run in alone_a] + [
        _run_alone(None, run, a, answers) for run in alone_b
    ]
    order = {id(run): position for position, run in enumerate([*a, *b])}
    return sorted(found, key=lambda pair: order[id(pair.a or pair.b)])


def _comparable(a: Sequence[StudyRun], b: Sequence[StudyRun], answers: bool) -> list[RunPair]:
    complete = all(run.facts.complete is not None for run in [*a, *b])
    groups: dict[str, list[StudyRun]] = {}
    for run in b:
        groups.setdefault(key(run.facts, complete=complete, answers=answers), []).append(run)
    possible = [
        _pair(run, other, answers)
        for run in a
        for other in groups.get(key(run.facts, complete=complete, answers=answers), [])
    ]
    return _each_once(sorted((pair for pair in possible if not pair.blocking), key=lambda pair: len(pair.differences)))


def _namesakes(a: Sequence[StudyRun], b: Sequence[StudyRun], answers: bool) -> list[RunPair]:
    return _each_once(
        [
            _pair(run, other, answers)
            for run in a
            for other in b
            if run.workload == other.workload and (answers or run.labels.keys() & other.labels.keys())
        ]
    )


def _run_alone(a: StudyRun | None, b: StudyRun | None, others: Sequence[StudyRun], answers: bool) -> RunPair:
    run = a or b
    assert run is not None
    pairs = [_pair(run, other, answers) if a else _pair(other, run, answers) for other in others]
    if not pairs:
        return RunPair(a, b, [], [])
    like = min(pairs, key=lambda pair: (len(pair.blocking), len(pair.differences)))
    return RunPair(a, b, like.differences, like.blocking, nearest=like.b if a else like.a)


def _pair(a: StudyRun, b: StudyRun, answers: bool) -> RunPair:
    found = differences(a.facts, b.facts)
    return RunPair(a, b, found, blocking(found, answers=answers))


def _each_once(pairs: Sequence[RunPair]) -> list[RunPair]:
    """The pairs in order, without those that share a run with an earlier pair."""
    taken: set[int] = set()
    kept = []
    for pair in pairs:
        if id(pair.a) not in taken and id(pair.b) not in taken:
            taken |= {id(pair.a), id(pair.b)}
            kept.append(pair)
    return kept


def _left(
    a: Sequence[StudyRun], b: Sequence[StudyRun], pairs: Sequence[RunPair]
) -> tuple[list[StudyRun], list[StudyRun]]:
    taken = {id(run) for pair in pairs for run in (pair.a, pair.b)}
    return [run for run in a if id(run) not in taken], [run for run in b if id(run) not in taken]


Row = dict[str, Any]
SAME = "same run"
ONLY = {"a": "only in a", "b": "only in b"}


@dataclass(frozen=True)
class StudyComparison:
    """Two studies and the table that compares them."""

    a: StudySide
    b: StudySide
    table: pa.Table
    """schemas.COMPARISON."""


def compare_studies(a: StudySide, b: StudySide) -> StudyComparison:
    """All runs of two studies in pairs, and their answers, with the changes from `a` to `b`.

    The metric, its basis and the margin are those of `a`'s objective.
    """
    noise = noise_by_workload(a, b, *a.study.objective.metric_and_basis)
    rows = [row for pair in pair_runs(a.runs, b.runs) for row in _rows(a, b, pair, "configuration", noise)]
    answers = pair_runs(a.answer, b.answer, answers=True)
    other_model = _other_model(a, b)
    rows += [row for pair in answers for row in _rows(a, b, pair, "answer", noise, other_model)]
    return StudyComparison(a, b, pa.Table.from_pylist(rows, schema=compared_schemas.COMPARISON))


def judged_pair(a: StudySide, b: StudySide, pair: RunPair, *, answers: bool) -> tuple[str, str]:
    """Verdict and reason of a pair by the objective of `a`, as they stand in the table."""
    metric, basis = a.study.objective.metric_and_basis
    refused = _other_model(a, b) if answers else None
    judged, _ = _judged(a, pair, metric, basis, noise_by_workload(a, b, metric, basis), refused)
    return judged["verdict"], judged["why"]


def noise_by_workload(a: StudySide, b: StudySide, metric: str, basis: Basis) -> dict[str, StartNoise]:
    """A metric's noise between server starts under each workload, from all runs of both studies, shared ones once."""
    runs = {(run.run_id, run.measured_at): run for side in (a, b) for run in side.runs if not has_logs(run)}
    by_workload: dict[str, list[JudgedRun]] = {run.workload: [] for side in (a, b) for run in side.runs}
    for run in runs.values():
        by_workload[run.workload].append(JudgedRun(run, run.values(metric, basis)))
    return {workload: noise_of_sides(each) for workload, each in by_workload.items()}


def has_logs(run: StudyRun) -> bool:
    """Whether its values are those of logs, not of server starts."""
    return run.facts.complete is None


def _other_model(a: StudySide, b: StudySide) -> str | None:
    """Why the answers of two studies are not compared, if they are about different models."""
    models = [side.study.model for side in (a, b)]
    either_recorded = a.is_recorded or b.is_recorded
    names = ("id",) if either_recorded else ("id", "revision", "source")
    one, other = ({name: model.get(name) for name in names} for model in models)
    return None if one == other else f"the studies are about different models, {models[0]['id']} and {models[1]['id']}"


def _rows(
    a: StudySide, b: StudySide, pair: RunPair, kind: str, noise: Mapping[str, StartNoise], refused: str | None = None
) -> Iterator[Row]:
    metric, basis = a.study.objective.metric_and_basis
    shared = {"study_a": a.name, "study_b": b.name, "kind": kind} | _differs(pair)
    shared |= {"workload": (pair.a or pair.b).workload} if pair.a or pair.b else {}  # type: ignore[union-attr]
    shared |= _run_columns("a", pair.a) | _run_columns("b", pair.b)
    judged, change = _judged(a, pair, metric, basis, noise, refused)
    yield shared | judged | _figures(pair, metric, basis, change, is_objective=True)
    if change is None:
        return
    assert pair.a is not None and pair.b is not None
    for other in METRICS:
        if other.higher_is_better is None or other.tag == metric or (other.needs_slos and not _same_limits(a, b, pair)):
            continue
        # for different numbers of accelerators, a rate is compared per accelerator
        unlike = other.is_rate and pair.a.accelerators != pair.b.accelerators
        other_basis: Basis = "accelerator" if unlike else "deployment"
        values = [run.values(other.tag, other_basis) for run in (pair.a, pair.b)]
        if all(values) and sum(values[0]) > 0 and _definition(pair, other.tag) is None:
            yield shared | judged | _figures(pair, other.tag, other_basis, ratio_ci95(*values), is_objective=False)


def _same_limits(a: StudySide, b: StudySide, pair: RunPair) -> bool:
    assert pair.a is not None and pair.b is not None
    return a.study.slos_of(pair.a.workload) == b.study.slos_of(pair.b.workload)


def _judged(
    a: StudySide, pair: RunPair, metric: str, basis: Basis, noise: Mapping[str, StartNoise], refused: str | None
) -> tuple[Row, Interval | None]:
    """Verdict and reason of a pair, and the change of its objective if there is one."""
    if pair.a is None or pair.b is None:
        return {"verdict": ONLY["a" if pair.a else "b"], "why": _alone(pair)}, None
    if refused or not pair.is_comparable:
        why = refused or "not comparable because of " + "; ".join(each.text for each in pair.blocking)
        return {"verdict": "not comparable", "why": why}, None
    if _is_same(pair.a, pair.b):
        return {"verdict": SAME, "why": "both studies use this run"}, None
    if (definition := _definition(pair, metric)) is not None:
        return {"verdict": "not comparable", "why": f"{metric} is defined differently: {definition}"}, None
    sides = [JudgedRun(run, run.values(metric, basis)) for run in (pair.a, pair.b)]
    # `judge` reads only the objective, which a study's summary has too
    study = cast(SearchedStudy, a.study)
    of_starts = None if has_logs(pair.a) or has_logs(pair.b) else noise[pair.a.workload]
    verdict, why, change = judge(study, sides[0], sides[1], ("a", "b"), noise=of_starts)
    return {"verdict": verdict, "why": why}, change


def _alone(pair: RunPair) -> str:
    other = "b" if pair.a else "a"
    if pair.nearest is None:
        return f"{other} has no run at all"
    texts = "; ".join(each.text for each in pair.blocking) or "nothing, but already has a counterpart"
    return f"{other} has none like it; the nearest, {pair.nearest.label} on {pair.nearest.workload}, differs in {texts}"


def _is_same(a: StudyRun, b: StudyRun) -> bool:
    """Whether both studies share this run; the same specification measured at another time is another run."""
    return a.run_id == b.run_id and a.measured_at == b.measured_at


def _definition(pair: RunPair, metric: str) -> str | None:
    """How the two clients' definitions of a metric differ; None if they are equal."""
    assert pair.a is not None and pair.b is not None
    texts = [run.definitions.get(metric) for run in (pair.a, pair.b)]
    if texts[0] == texts[1]:
        return None
    usual = "as in docs/reference/metrics.md"
    return "; ".join(f"{side}: {text or usual}" for side, text in zip("ab", texts, strict=True))


def _differs(pair: RunPair) -> Row:
    """Differences of a pair, and its unknown facts."""
    texts = [each.text for each in pair.differences]
    unknown = None
    if pair.a is not None and pair.b is not None:
        if machine := machine_changes(pair.a.machine, pair.b.machine):
            texts.append(f"machine: {machine}")
        days = [run.measured_at[:10] if run.measured_at else None for run in (pair.a, pair.b)]
        if None not in days and days[0] != days[1]:
            texts.append(f"date {days[0]} → {days[1]}")
        unknown = None if pair.a.facts.complete and pair.b.facts.complete else NOT_RECORDED
    return {"differs": "; ".join(texts) or None, "not_known": unknown}


def _run_columns(side: str, run: StudyRun | None) -> Row:
    if run is None:
        return {}
    row: Mapping[str, Any] = run.table_row
    found = {
        "candidate": run.label,
        "engine": run.engine,
        "engine_version": run.version,
        "accelerators": run.accelerators,
        "run_id": run.run_id,
        "measured_at": run.measured_at,
        "outcome": row["outcome"],
        "validity": row["validity"],
    }
    return {f"{name}_{side}": value for name, value in found.items()}


def _figures(pair: RunPair, metric: str, basis: Basis, change: Interval | None, *, is_objective: bool) -> Row:
    found: Row = {
        "metric": metric,
        "basis": basis,
        "is_objective": is_objective,
        "higher_is_better": METRICS.get(metric).higher_is_better,
        "change_percent": change and change.value,
        "change_ci95_low_percent": change and change.low,
        "change_ci95_high_percent": change and change.high,
    }
    for side, run in (("a", pair.a), ("b", pair.b)):
        if run is not None and (values := run.values(metric, basis)):
            mean = mean_ci95(values)
            found |= {f"value_{side}": mean.value, f"ci95_low_{side}": mean.low, f"ci95_high_{side}": mean.high}
    return found
