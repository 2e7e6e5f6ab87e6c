"""The comparison of two studies as a table: schemas.COMPARISON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import pyarrow as pa

from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import Basis
from servelab.metrics.statistics import Interval, change_columns, mean_ci95, ratio_interval
from servelab.metrics.tables.schemas import COMPARISON
from servelab.report.compare.sides import (
    FactDifference,
    JudgedRun,
    StudyRun,
    StudySide,
    blocking,
    differences,
)
from servelab.search.decide import StartNoise
from servelab.search.verdict import judge, machine_changes, noise_of_sides
from servelab.study.project import SearchedStudy

Row = dict[str, Any]
SAME = "same run"
ONLY = {"a": "only in a", "b": "only in b"}


@dataclass(frozen=True)
class RunPair:
    """Two runs, or one without a counterpart."""

    a: StudyRun | None
    b: StudyRun | None
    differences: Sequence[FactDifference] = ()
    """Fields in which the two differ."""
    blocking: Sequence[FactDifference] = ()
    """Those of the differences that make the two not comparable."""

    @property
    def runs(self) -> list[StudyRun]:
        """The two, or the one."""
        return [run for run in (self.a, self.b) if run is not None]

    @property
    def both(self) -> tuple[StudyRun, StudyRun]:
        """The two of a pair."""
        assert self.a is not None and self.b is not None
        return self.a, self.b


@dataclass(frozen=True)
class JudgedPair:
    """A pair with its verdict by the objective of the first study."""

    pair: RunPair
    verdict: str
    why: str
    change: Interval | None = None
    """The objective's change in percent; None if the two have none."""


@dataclass(frozen=True)
class StudyComparison:
    """Two studies, and what came of comparing their runs."""

    a: StudySide
    b: StudySide
    configurations: list[JudgedPair]
    answers: list[JudgedPair]

    @property
    def table(self) -> pa.Table:
        """schemas.COMPARISON."""
        kinds = (("configuration", self.configurations), ("answer", self.answers))
        rows = [row for kind, found in kinds for each in found for row in _rows(self.a, self.b, each, kind)]
        return pa.Table.from_pylist(rows, schema=COMPARISON)


def compare_studies(a: StudySide, b: StudySide) -> StudyComparison:
    """All runs of two studies in pairs, and their answers, with the changes from `a` to `b`.

    The metric, its basis and the margin are those of `a`'s objective.
    """
    noise = noise_by_workload(a, b, *a.study.objective.metric_and_basis)
    other_model = _other_model(a, b)
    return StudyComparison(
        a,
        b,
        configurations=[_judged(a, pair, noise) for pair in pair_runs(a.runs, b.runs)],
        answers=[_judged(a, pair, noise, other_model) for pair in pair_runs(a.answer, b.answer, answers=True)],
    )


def pair_runs(a: Sequence[StudyRun], b: Sequence[StudyRun], *, answers: bool = False) -> list[RunPair]:
    """Puts every run into one pair: comparable runs first, each with the run that differs least from it.

    Of the others, runs with the same candidate's name and workload form pairs, and the rest have no counterpart.
    `answers` may also differ in their configuration.
    """
    possible = []
    for run, other in product(a, b):
        facts = differences(run.facts, other.facts)
        possible.append(RunPair(run, other, facts, blocking(facts, answers=answers)))
    comparable = sorted((pair for pair in possible if not pair.blocking), key=lambda pair: len(pair.differences))
    left = {id(run): run for run in (*a, *b)}
    order = {each: position for position, each in enumerate(left)}
    found = []
    for pair in (*comparable, *(pair for pair in possible if _is_namesake(pair, answers))):
        if left.keys() >= {id(pair.a), id(pair.b)}:
            found.append(pair)
            for run in pair.runs:
                left.pop(id(run), None)
    of_a = set(map(id, a))
    found += [RunPair(run, None) if each in of_a else RunPair(None, run) for each, run in left.items()]
    return sorted(found, key=lambda pair: order[id(pair.runs[0])])


def _is_namesake(pair: RunPair, answers: bool) -> bool:
    a, b = pair.both
    return a.workload == b.workload and (answers or bool(a.labels.keys() & b.labels.keys()))


def noise_by_workload(a: StudySide, b: StudySide, metric: str, basis: Basis) -> dict[str, StartNoise]:
    """A metric's noise between server starts under each workload, from all runs of both studies, shared ones once."""
    runs = {(run.run_id, run.measured_at): run for side in (a, b) for run in side.runs}
    by_workload: dict[str, list[JudgedRun]] = {run.workload: [] for side in (a, b) for run in side.runs}
    for run in runs.values():
        by_workload[run.workload].append(JudgedRun(run, run.values(metric, basis)))
    return {workload: noise_of_sides(each) for workload, each in by_workload.items()}


def _other_model(a: StudySide, b: StudySide) -> str | None:
    """Why the answers of two studies are not compared, if they are about different models."""
    models = [side.study.model for side in (a, b)]
    one, other = ({name: model.get(name) for name in ("id", "revision", "source")} for model in models)
    return None if one == other else f"the studies are about different models, {models[0]['id']} and {models[1]['id']}"


def _judged(a: StudySide, pair: RunPair, noise: Mapping[str, StartNoise], refused: str | None = None) -> JudgedPair:
    if pair.a is None or pair.b is None:
        return JudgedPair(pair, ONLY["a" if pair.a else "b"], f"{'b' if pair.a else 'a'} has none like it")
    if refused or pair.blocking:
        why = refused or "not comparable because of " + "; ".join(each.text for each in pair.blocking)
        return JudgedPair(pair, "not comparable", why)
    # the same specification measured at another time is another run
    if (pair.a.run_id, pair.a.measured_at) == (pair.b.run_id, pair.b.measured_at):
        return JudgedPair(pair, SAME, "both studies use this run")
    metric, basis = a.study.objective.metric_and_basis
    if (definition := _definition(pair, metric)) is not None:
        return JudgedPair(pair, "not comparable", f"{metric} is defined differently: {definition}")
    sides = [JudgedRun(run, run.values(metric, basis)) for run in pair.both]
    # `judge` reads only the objective, which a study's summary has too
    study = cast(SearchedStudy, a.study)
    return JudgedPair(pair, *judge(study, sides[0], sides[1], ("a", "b"), noise=noise[pair.a.workload]))


def _definition(pair: RunPair, metric: str) -> str | None:
    """How the two clients' definitions of a metric differ; None if they are equal."""
    texts = [run.definitions.get(metric) for run in pair.both]
    if texts[0] == texts[1]:
        return None
    usual = "as in docs/reference/metrics.md"
    return "; ".join(f"{side}: {text or usual}" for side, text in zip("ab", texts, strict=True))


def _rows(a: StudySide, b: StudySide, judged: JudgedPair, kind: str) -> Iterator[Row]:
    """The objective's row, and one for each other metric of a pair that has a change."""
    pair, (metric, basis) = judged.pair, a.study.objective.metric_and_basis
    shared = {"study_a": a.name, "study_b": b.name, "kind": kind, "workload": pair.runs[0].workload} | _differs(pair)
    shared |= {"verdict": judged.verdict, "why": judged.why}
    for side, run in (("a", pair.a), ("b", pair.b)):
        shared |= {f"{name}_{side}": value for name, value in _run_columns(run).items()}
    yield shared | _figures(pair, metric, basis, judged.change) | {"is_objective": True}
    if judged.change is None:
        return
    one, another = pair.both
    same_limits = a.study.slos_of(one.workload) == b.study.slos_of(another.workload)
    for other in METRICS:
        if other.higher_is_better is None or other.tag == metric or (other.needs_slos and not same_limits):
            continue
        other_basis = basis_of(a, other.tag, pair)
        before, after = (run.values(other.tag, other_basis) for run in pair.both)
        if before and after and sum(before) > 0 and _definition(pair, other.tag) is None:
            change = ratio_interval(before, after)
            yield shared | _figures(pair, other.tag, other_basis, change) | {"is_objective": False}


def basis_of(a: StudySide, metric: str, pair: RunPair) -> Basis:
    """That of the objective for its metric; others are as run, and rates per accelerator if the numbers differ."""
    objective, basis = a.study.objective.metric_and_basis
    if metric == objective:
        return basis
    one, other = pair.both
    return "accelerator" if METRICS.get(metric).is_rate and one.accelerators != other.accelerators else "deployment"


def _differs(pair: RunPair) -> Row:
    """Differences of a pair."""
    texts = [each.text for each in pair.differences]
    if len(pair.runs) == 2:
        one, other = pair.both
        if machine := machine_changes(one.machine, other.machine):
            texts.append(f"machine: {machine}")
        days = [run.measured_at[:10] if run.measured_at else None for run in (one, other)]
        if None not in days and days[0] != days[1]:
            texts.append(f"date {days[0]} → {days[1]}")
    return {"differs": "; ".join(texts) or None}


def _run_columns(run: StudyRun | None) -> Row:
    if run is None:
        return {}
    return {
        "candidate": run.label,
        "engine": run.engine,
        "engine_version": run.version,
        "accelerators": run.accelerators,
        "run_id": run.run_id,
        "measured_at": run.measured_at,
        "outcome": run.table_row["outcome"],
        "validity": run.table_row["validity"],
    }


def _figures(pair: RunPair, metric: str, basis: Basis, change: Interval | None) -> Row:
    found: Row = {
        "metric": metric,
        "basis": basis,
        "higher_is_better": METRICS.get(metric).higher_is_better,
        **change_columns(change),
    }
    for side, run in (("a", pair.a), ("b", pair.b)):
        if run is not None and (values := run.values(metric, basis)):
            mean = mean_ci95(values)
            found |= {f"value_{side}": mean.value, f"ci95_low_{side}": mean.low, f"ci95_high_{side}": mean.high}
    return found
