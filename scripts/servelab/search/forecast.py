"""Estimates what is left of a study, runs, server starts and accelerator time, and what its proof can find.

Winners that are not known yet decide what is planned next. So it is assumed that winners stay as they are on disk (or
incumbents, if there is no winner yet), that the proof needs its first pairs only, and that a server start and a run
take as long as similar past ones did, or, where there are none, as `servelab.results.expected_times` says.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from servelab.core.errors import ServelabError
from servelab.core.figure_text import runs_text
from servelab.core.run_spec import RunSpec, Strict
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.results.expected_times import expected_time
from servelab.results.past_runs import PastTimes, VisitTime, split_text
from servelab.search.course import Step, follow, predictions_on_disk
from servelab.search.decide import PRIOR, StartNoise, pooled_noise, start_values
from servelab.search.decision import rows_of
from servelab.search.options_space import space_of
from servelab.search.proof import ProofPair, looks, pairs_for_promise, proved_change
from servelab.search.strategies import strategy_of
from servelab.study.configuration import key_of
from servelab.study.plan import Plan
from servelab.study.predictions import Predictions
from servelab.study.project import Project, StudySummary
from servelab.study.study import Study

_MOST_SHOWN = 20
"""Candidates of the next stage that are listed at most, and predictions."""
_REFUSED = 3


class StageLeft(Strict):
    """The part of a stage that is left if the winners stay."""

    title: str
    starts: int
    about_s: float | None
    is_known: bool
    """Whether its plan is certain."""


class Forecast(Strict):
    """The part of a study that is left if the winners stay. `known` of its runs are certain."""

    study: str
    measured: int
    about: int
    about_starts: int
    about_s: float | None
    """Accelerator-seconds; None if a run has no similar past one, and the size of its model is not known."""
    is_past: bool
    """Whether all runs have similar past ones."""
    known: int
    stages: list[StageLeft]
    power: str
    """The gains that its proof can find within the budget, with starts like those of past studies; its hours."""
    split: str
    """The shares of its hours; empty if they are not known."""
    search: str | None
    """How its strategy spreads the runs, if the study's stages do not show it."""
    next_stage: list[str]
    """Title of the first stage with runs left, and the serving commands of its first candidates with runs left."""
    predicted: Predictions | None
    """Of a study with a prior: figures of its combinations by name, best first, none of them measured."""

    def lines(self) -> list[str]:
        """Lines for a terminal: what is left, each stage with its server starts and hours, and what comes next."""
        left = [stage for stage in self.stages if stage.starts]
        if not left:
            return [f"{self.study}: nothing left to measure ({runs_text(self.measured)} measured)"]
        source = "by past runs" if self.is_past else "by an estimate"
        hours = "" if self.about_s is None else f", about {_hours(self.about_s)} accelerator-hours {source}"
        starts = "1 server start" if self.about_starts == 1 else f"{self.about_starts} server starts"
        head = f"{self.study}: {starts} left if the winners stay ({self.measured} runs measured){hours}"
        groups = [
            list(group)
            for _, group in groupby(left, lambda stage: (re.sub(r" \d+:", ":", stage.title), stage.is_known))
        ]
        titles = [_title([stage.title for stage in group]) for group in groups]
        width = max(map(len, titles))
        rows = [f"{'stage':<{width}}  starts   hours"]
        for title, group in zip(titles, groups, strict=True):
            seconds = _sum([stage.about_s for stage in group])
            count = sum(stage.starts for stage in group)
            hours = "?" if seconds is None else _hours(seconds)
            rows.append(f"{title:<{width}}  {count:>6}  {hours:>6}{'' if group[0].is_known else '  *'}")
        if not left[-1].is_known:
            rows.append("* as far as is known now: it depends on what earlier stages find")
        certain = "certain by now: nothing, since a stage that is measured is decided again"
        if self.known:
            certain = f"certain by now: {runs_text(self.known)}"
        rows += filter(None, [certain, self.split, self.power, self.search, *self.next_stage, *self._predictions()])
        return [head, *(f"  {row}" for row in rows)]

    def _predictions(self) -> list[str]:
        """Lines for a terminal, in a colour that no other line has."""
        if self.predicted is None:
            return []
        on, off = ("\033[35m", "\033[0m") if sys.stderr.isatty() else ("", "")
        figures, refused = self.predicted.figures, self.predicted.refused
        width = max(map(len, figures), default=0)
        rows = [
            f"  {name:<{width}}  {each.total_tokens_per_s:>9,.0f} tokens/s, TTFT {each.ttft_ms:>7,.0f} ms,"
            f" TPOT {each.tpot_ms:>5,.1f} ms, ± {each.error_percent:.0f} % by {each.source}"
            for name, each in figures.items()
        ][:_MOST_SHOWN]
        head = f"predicted, not measured: {len(figures)} combinations, each beside others of its engine"
        rows = [f"{head}; all may be several times too fast", *rows, *refused[:_REFUSED]]
        return [f"{on}{row}{off}" for row in rows]


def _title(titles: Sequence[str]) -> str:
    """One title for stages that differ in their number only: `Refinement 1 to 15: …`."""
    if len(titles) == 1:
        return titles[0]
    last = re.search(r" (\d+):", titles[-1])
    return titles[0] if last is None else re.sub(r" (\d+):", rf" \1 to {last[1]}:", titles[0], count=1)


Visit = Sequence[RunSpec]
"""The runs that one server start serves."""


def forecast(
    project: Project,
    results: Path,
    is_complete: Callable[[str], bool] | None = None,
    steps: Iterable[Step] | None = None,
) -> Forecast:
    """Counts what is left: exactly for stages whose incumbent is decided, as an estimate for the others.

    `is_complete` says of a run whether it was measured; by default, whether its `status.json` is there. `steps`
    are those of `follow`, if they are known already.
    """
    is_complete = is_complete or (lambda run_id: (results / "runs" / run_id / "status.json").exists())
    measured: set[str] = set()
    planned: set[str] = set()
    next_stage: list[str] = []
    stages: list[tuple[Step, list[Visit]]] = []
    for step in follow(project, results) if steps is None else steps:
        left = {run_id for run_id in step.plan.run_ids() if not is_complete(run_id)}
        new = left - planned
        visits = [[run.spec for run in visit if run.run_id in new] for job in step.plan.jobs() for visit in job]
        stages.append((step, [visit for visit in visits if visit]))
        planned |= left
        if step.is_known:
            measured |= set(step.plan.run_ids()) - left
            next_stage = next_stage or (_described(step.plan, left) if left else [])
    past = PastTimes(results / "runs")
    all_visits = [visit for _, of_stage in stages for visit in of_stage]
    found = [
        StageLeft(
            title=step.plan.title,
            starts=len(of_stage),
            about_s=_sum([time and time.accelerator_s for time in (_cost(past, visit) for visit in of_stage)]),
            is_known=step.is_known,
        )
        for step, of_stage in stages
    ]
    about_s = _sum([stage.about_s for stage in found])
    spent_s = sum(past.held_s.get(run_id, 0.0) for run_id in measured)
    return Forecast(
        study=project.study.study,
        measured=len(measured),
        about=sum(map(len, all_visits)),
        about_starts=len(all_visits),
        about_s=about_s,
        is_past=all(past.of_visit(visit) for visit in all_visits),
        known=sum(len(visit) for step, of_stage in stages if step.is_known for visit in of_stage),
        stages=found,
        power=_power(project.study, results, past, stages[-1][0].plan, spent_s, about_s) if all_visits else "",
        split=_split(project, all_visits, past),
        search=strategy_of(project.study).summary(project.study),
        next_stage=next_stage,
        predicted=_predicted(project, results),
    )


def _predicted(project: Project, results: Path) -> Predictions | None:
    study, found = project.study, predictions_on_disk(project, results)
    if found is None:
        made = f"{results}/studies/{study.study}/predicted.json"
        how = f"  not yet; without an accelerator: servelab run {study.study} -- {made}"
        return Predictions(values={}, error=0.0, refused=[how]) if study.search.prior else None
    names = {key_of(each.configuration): each.name for each in space_of(study).variants}
    keys = sorted(found.figures.keys() & names, key=lambda key: (-study.objective.sign * found.values[key], names[key]))
    own = {name: {names[key]: getattr(found, name)[key] for key in keys} for name in ("values", "figures")}
    return found.model_copy(update={**own, "refused": [f"  not used: {each}" for each in found.refused]})


def _cost(past: PastTimes, visit: Visit) -> VisitTime | None:
    """As past ones took, or as expected; None if there is no past one, and the size of its model is not known."""
    found, expected, count = past.of_visit(visit), expected_time(visit), visit[0].hardware.count
    if found or expected is None:
        return found
    return VisitTime(*(count * each for each in (expected.seconds, expected.load_s, expected.start_s)))


def _split(project: Project, visits: Sequence[Visit], past: PastTimes) -> str:
    """The shares of the accelerator time of these visits, see `split_text`; empty if unknown."""
    times = [_cost(past, visit) for visit in visits]
    known = [time for time in times if time is not None]
    total = sum(time.accelerator_s for time in known)
    if len(known) < len(times) or not total:
        return ""
    name = project.study.objective.on
    on, protocol_of = project.workload_spec(name), project.study.protocol_of
    deciding = [
        [spec for spec in visit if (spec.workload, spec.protocol) == (on, protocol_of(name, spec.hardware.count))]
        for visit in visits
    ]
    decides = sum(time.load_accelerator_s for each in deciding if each and (time := _cost(past, each)))
    loads, start = sum(time.load_accelerator_s for time in known), sum(time.start_accelerator_s for time in known)
    return split_text({"deciding load": decides, "other loads": loads - decides, "start-up": start}, total)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _described(plan: Plan, unmeasured: Set[str]) -> list[str]:
    """Lines for a stage: its title, and the first candidates with runs left."""
    left = [
        candidate for candidate in plan.candidates if any(run.run_id in unmeasured for run in candidate.measured_runs)
    ]
    shown = []
    for candidate in left[:_MOST_SHOWN]:
        count, balancer = candidate.configuration.replicas, candidate.configuration.balancer
        servers = f"{count} servers, {balancer}: " if count > 1 else ""
        shown.append(f"  {candidate.candidate}: {servers}{candidate.command}")
    more = [f"  … and {len(left) - _MOST_SHOWN} more"] if len(left) > _MOST_SHOWN else []
    return [f"next: {plan.title}", *shown, *more]


def _hours(seconds: float) -> str:
    """Hours with one decimal, or with one significant digit below 0.1."""
    hours = seconds / 3600
    return f"{hours:.1f}" if hours >= 0.1 or not hours else f"{hours:.1g}"


_PROOFS = 200
"""Simulated for each gain: a share is within 7 points."""
_GAINS = (3.0, 5.0, 10.0)


@lru_cache
def power(
    gain_percent: float, sd_percent: float, first: int, most: int, within: float | None, margin: float
) -> tuple[float, float]:
    """Share of the proofs that recommend a gain that is promised as it is, and their mean pairs."""
    draw, sd, proved, taken = random.Random(1), sd_percent / 100, 0, 0  # noqa: S311 - a simulation
    for _ in range(_PROOFS):
        pairs: list[ProofPair] = []
        wanted = first
        while len(pairs) < wanted:
            base, winner = draw.gauss(0, sd), math.log1p(gain_percent / 100) + draw.gauss(0, sd)
            pairs.append(ProofPair(math.exp(base), math.exp(winner), 1 if len(pairs) % 2 == 0 else -1))
            if len(pairs) == wanted:
                wanted = pairs_for_promise(pairs, gain_percent, within, looks(first, most))
        change = proved_change(pairs)
        proved += change.low is not None and change.low > 0 and change.value > margin
        taken += len(pairs)
    return proved / _PROOFS, taken / _PROOFS


def power_text(study: Study, noise: StartNoise, gains: Sequence[float] = _GAINS, of: str = "a gain") -> str:
    """`starts scatter by 1.5 % (as measured): a gain of 3 % with 78 % in 7.2 pairs, 5 % with 97 % in 4.1 is proved`."""
    keys, margin = study.proof, study.objective.margin_percent
    found = [
        (gain, power(gain, round(noise.sd_percent, 1), keys.pairs, keys.most_pairs, keys.within_percent, margin))
        for gain in gains
        if gain > margin
    ]
    parts = [f"{gain:.3g} % with {100 * proved:.0f} % in {pairs:.2g} pairs" for gain, (proved, pairs) in found]
    known = "assumed" if noise == PRIOR else "as measured"
    text = f"starts scatter by {noise.sd_percent:.1f} % ({known})"
    return f"{text}: {of} of {', '.join(parts)} is proved" if parts else f"{text}: no gain exceeds the margin"


def _power(study: Study, results: Path, past: PastTimes, proof: Plan, spent_s: float, about_s: float | None) -> str:
    """`power_text` within the budget, and the hours left; `proof` is the plan of the first pairs, or of all."""
    noise, most, room = past_noise(study, results), study.proof.most_pairs, ""
    sides = [[run.spec for run in each.runs if run.workload == study.objective.on] for each in proof.candidates]
    a_pair_s = _sum([time and time.accelerator_s for side in sides if side for time in [_cost(past, side[:1])]])
    if len(sides) < 2 or not all(sides) or not a_pair_s or about_s is None:
        return power_text(study, noise)
    if study.budget is not None:
        left_s = 3600 * study.budget.accelerator_hours - spent_s - about_s
        most = min(most, len(sides[0]) + max(0, int(left_s // a_pair_s)))
        room = f"; the budget of {study.budget.accelerator_hours:g} accelerator-hours "
        room += f"allows {most} of {study.proof.most_pairs} pairs" if left_s >= 0 else "leaves candidates out"
    limited = study.model_copy(update={"proof": study.proof.model_copy(update={"most_pairs": most})})
    takes = f"; what is left takes about {_hours(about_s + (most - len(sides[0])) * a_pair_s)} h with {most} pairs"
    return f"{power_text(limited, noise)}{takes}{room}"


def past_noise(study: Study, results: Path) -> StartNoise:
    """The noise between server starts of all studies in `results` on the same accelerator, by their tables."""
    found = []
    seen = set()
    for file in sorted(results.glob("studies/*/stages/*/table.parquet")):
        try:
            described = StudySummary.read(file.parents[2] / "study.json")
            table = read_table(file, schemas.STAGE_TABLE)
        except ServelabError:  # of another version
            continue
        if described.hardware.accelerator != study.hardware.accelerator:
            continue
        for row in rows_of(table):
            values = start_values(row)
            if len(values) > 1 and min(values) > 0 and tuple(row["run_ids"]) not in seen:
                seen.add(tuple(row["run_ids"]))
                found.append(values)
    return pooled_noise(found)
