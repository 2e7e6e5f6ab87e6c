"""Plans a proof, how many pairs of server starts baseline and winner get, and judges it from its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf, log, nan
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from servelab.answers import comparison
from servelab.core.identity import canonical_json
from servelab.results.checks import unequal_places
from servelab.results.compare_with_baseline import counted_starts, paired_labels
from servelab.results.parse import SATURATED
from servelab.search.decide import (
    StartNoise,
    ahead,
    can_win,
    natural_lengths,
    pooled_noise,
    relative_change,
    start_values,
    unfit,
)
from servelab.search.decision import (
    CHANGES_ANSWERS,
    PastStage,
    Row,
    is_barred,
    rows_of,
    settle,
    soundest,
    too_many_failed,
)
from servelab.search.planning import plan_confirm
from servelab.search.proof import (
    BETTER,
    SAME,
    WORSE,
    ProofPair,
    ProofVerdict,
    judge_proof,
    looks,
    pairs_for_promise,
)
from servelab.study.configuration import Configuration, Incumbent, as_searched, baseline, difference, key_of
from servelab.study.plan import LeftOut, Plan, order_of
from servelab.study.project import Project
from servelab.study.study import CONFIRM_MORE, SECOND_PROOF, Study


class Tried(NamedTuple):
    """A configuration that the search measured under the whole load, and is fit to win."""

    incumbent: Incumbent
    row: Row
    """Its last row of schemas.STAGE_TABLE."""


def next_best(study: Study, past: Sequence[PastStage], loser: Configuration, noise: StartNoise) -> Incumbent | None:
    """The best configuration besides `loser` that is better than the baseline by the rule of the search; None if none.

    `loser` changed its answers in the first pairs of its proof, though nobody asked about its settings. So the next
    best was asked itself, or it has none of the settings that may be to blame.

    `noise` is that of the search's server starts.
    """
    start = baseline(study).configuration
    fit = tried(study, past)
    base = fit.pop(key_of(start), None)
    fit.pop(key_of(loser), None)
    if base is None or not base.row["objective_value"]:
        return None
    suspects, kept = _choices(start, loser), (comparison.SAME, comparison.CANNOT_TELL)
    sign = study.objective.sign
    sound = [
        each
        for each in fit.values()
        if (each.row.get("answers") in kept or suspects.isdisjoint(_choices(start, each.incumbent.configuration)))
        and _is_better(study, each.row, base.row, noise, sign)
    ]
    rows = [each.row for each in sound]
    chosen = soundest(study, rows, range(len(rows)))
    best = max(chosen, key=lambda position: sign * float(rows[position]["objective_value"]), default=None)
    return None if best is None else sound[best].incumbent


def tried(study: Study, past: Sequence[PastStage]) -> dict[str, Tried]:
    """The measured configurations that are fit, by `key_of`; one that changed answers anywhere is not."""
    found: dict[str, Tried] = {}
    changed = set()
    for stage in past:
        if stage.table is None:
            continue
        rows: dict[str, Row] = {row["candidate"]: row for row in rows_of(stage.table)}
        for candidate in stage.plan.candidates:
            row, key = rows.get(candidate.candidate), key_of(candidate.configuration)
            if row is None:
                continue
            if row.get("answers") == comparison.CHANGES:
                changed.add(key)
            elif unfit(study, row) is None:
                incumbent = Incumbent(candidate=candidate.candidate, configuration=candidate.configuration)
                found[key] = Tried(incumbent, row)
    return {key: each for key, each in found.items() if key not in changed}


def _choices(start: Configuration, configuration: Configuration) -> frozenset[str]:
    """The settings that a configuration has otherwise than the baseline, each with its value."""
    found = set()
    for name, value in difference(start, configuration).items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        found |= {canonical_json([name, key, content]) for key, content in parts}
    return frozenset(found)


def _is_better(study: Study, row: Row, base: Row, noise: StartNoise, sign: int) -> bool:
    if not can_win(study, row, base):
        return False
    gain = sign * relative_change(row, base, noise).value
    return settle(study, row, base, ahead(study, row, base, noise), gain)[0] == "better"


def by_second(table: pd.DataFrame) -> pd.DataFrame:
    """A table of the search (schemas.STAGE_TABLE) with the second objective in place of the first."""
    rows = table.to_dict("records")
    values = [fmean([row["second_values"][at] for at in counted_starts(row)] or [nan]) for row in rows]
    return table.assign(start_values=table["second_values"], objective_value=values)


def past_by_second(past: Sequence[PastStage]) -> list[PastStage]:
    """The measured stages of the search by the second objective; their decisions stay those by the first."""
    return [replace(each, table=by_second(each.table)) for each in past if each.table is not None]


SECONDS_PER_HOUR = 3600.0
LEAST_PAIRS = 2
"""Of the next best: fewer have no interval."""


class ProofStage(NamedTuple):
    """A stage of the proof that is measured."""

    plan: Plan
    table: pd.DataFrame
    """Columns of schemas.STAGE_TABLE."""


def plan_proof(project: Project, stage: str, past: Sequence[PastStage], before: ProofStage | None = None) -> Plan:
    """The plan of a stage of the proof, with all pairs of the stages before it.

    `past` are all stages of the search, `before` is the proof's stage before this one. Without it, as in an estimate,
    there are no more pairs than the first. If the winner changed its answers in these, the next best is proved instead,
    with pairs of its own: as many as are left of `proof.most_pairs`, at most.
    """
    study = project.study.of_stage(stage)
    winner = past[-1].winner if past else baseline(study)
    if stage in SECOND_PROOF:  # `past` is by the second of two objectives: its best is proved
        start = baseline(study)
        winner = next_best(study, past, start.configuration, search_noise(study, past)) or start
    if before is None:
        return plan_confirm(project, winner, study.proof.pairs, stage)
    left, changed = study.proof.most_pairs - study.proof.pairs, _changed_answers(study, before)
    if changed is not None and left >= LEAST_PAIRS and before.plan.left_out is None:
        other = next_best(study, past, winner.configuration, search_noise(study, past))
        if other is not None:
            promised = promised_percent(study, past, winner.configuration)
            left_out = LeftOut(candidate=winner.candidate, change_percent=promised, why=changed)
            plan = plan_confirm(project, other, min(left, study.proof.pairs), stage)
            return plan.model_copy(update={"left_out": left_out})
    proved = as_searched(study, before.plan.candidates[-1].configuration)
    winner = Incumbent(candidate=str(before.plan.proposed), configuration=proved)
    pairs, lost = pairs_for(study, stage, before, past), lost_pairs(study, before)
    limited, most = None, _affordable(study, before, past) if len(before.plan.candidates) > 1 else inf
    if pairs > most and study.budget is not None:
        hours = study.budget.accelerator_hours
        limited = f"The budget of {hours:g} accelerator-hours ended the proof after {most} of {pairs} pairs."
        pairs = int(most)
    plan = plan_confirm(project, winner, pairs, stage, lost)
    return plan.model_copy(update={"left_out": before.plan.left_out, "limited": limited})


def lost_pairs(study: Study, stage: ProofStage) -> dict[str, int]:
    """How many pairs of a stage do not count on each workload, because they were disturbed or torn apart.

    A failure is a result, so a workload on which a side failed has lost none.
    """
    if len(stage.plan.candidates) < 2:
        return {}
    planned = Counter(run.workload for run in stage.plan.candidates[0].runs)
    return {
        name: planned[name] - len(pairs_of(stage.table, name))
        for name in study.workloads
        if not any(_failure(stage.table, name, side) for side in (0, 1))
    }


def pairs_for(study: Study, stage: str, before: ProofStage, past: Sequence[PastStage]) -> int:
    """How many pairs a stage of the proof has, those of the stage before it included.

    One more for each that does not count under the load that decides, and at least as many as any workload wants, but
    never more than `proof.most_pairs`.
    """
    on, most, plan = study.objective.on, study.proof.most_pairs, before.plan
    planned = Counter(run.workload for run in plan.candidates[0].runs)[on]
    measured, lost = pairs_of(before.table, on), lost_pairs(study, before)
    if on not in lost:  # a side failed
        return planned
    most -= study.proof.pairs if plan.left_out else 0
    pairs = max(len(measured), min(study.proof.pairs, most))
    promised = promised_percent(study, past, plan.candidates[-1].configuration)
    if len(measured) == pairs and promised is not None:
        steps = looks(min(study.proof.pairs, most), most) if stage.endswith(CONFIRM_MORE) else [most]
        levels = _levels(study, past, plan.candidates[-1].configuration)
        pairs = pairs_for_promise(measured, promised, study.proof.within_percent, steps, levels)
    return max(planned, min(most, max(pairs + lost[on], *map(study.pairs_on, study.workloads))))


def spent_s(past: Sequence[PastStage]) -> dict[str, float]:
    """Accelerator-seconds of each run of past stages by its id; a run that two stages share counts once."""
    found: dict[str, float] = {}
    for stage in past:
        assert stage.table is not None
        rows = stage.table.dropna(subset=["run_id", "accelerator_s"])
        for runs, seconds in zip(rows["run_ids"], rows["accelerator_s"], strict=True):
            # a row has the sum of its starts, which take about as long
            found |= dict.fromkeys(runs, seconds / len(runs))
    return found


def within_budget(study: Study, past: Sequence[PastStage]) -> Study:
    """The study with as many pairs as its budget allows after a search, if each start takes as long as the mean one."""
    spent = spent_s(past)
    if study.budget is None or not sum(spent.values()):
        return study
    starts = (SECONDS_PER_HOUR * study.budget.accelerator_hours / sum(spent.values()) - 1) * len(spent)
    most = max(study.proof.pairs, min(study.proof.most_pairs, int(starts / 2 / len(study.proofs))))
    return study.model_copy(update={"proof": study.proof.model_copy(update={"most_pairs": most})})


def _affordable(study: Study, before: ProofStage, past: Sequence[PastStage]) -> float:
    """How many pairs the study's budget allows in all, by what those of a measured stage took."""
    if study.budget is None:
        return inf
    on, planned = study.objective.on, before.plan.candidates[0].runs
    rows = rows_of(before.table[before.table["workload"] == on])
    start_s = 0.0 if planned[0].workload == on else sum(row["startup_s"] * row["accelerators"] for row in rows)
    pairs = sum(run.workload == on for run in planned)
    a_pair_s = start_s + sum(row["accelerator_s"] for row in rows) / pairs
    # of two proofs, each has half of what the search left
    left_s = (SECONDS_PER_HOUR * study.budget.accelerator_hours - sum(spent_s(past).values())) / len(study.proofs)
    left_s -= float(before.table["accelerator_s"].sum())
    return pairs + (max(0, int(left_s // a_pair_s)) if a_pair_s > 0 else inf)


def _levels(study: Study, past: Sequence[PastStage], proposed: Configuration) -> list[float]:
    """The level of each start of the winner in the search, with the mean of the baseline's there."""
    base, winner = _promised_rows(study, past, proposed)
    values = [start_values(row) if row else [] for row in (base, winner)]
    if not all(values) or min(map(min, values)) <= 0:
        return []
    of_baseline = fmean(map(log, values[0]))
    return [(log(value) + of_baseline) / 2 for value in values[1]]


def _changed_answers(study: Study, stage: ProofStage) -> str | None:
    """The loss in the winner's answers in a stage, if that is why it is not fit; None otherwise."""
    rows = rows_of(stage.table[stage.table["workload"] == study.objective.on])
    found = unfit(study, max(rows, key=lambda row: row["position"])) if len(stage.plan.candidates) > 1 else None
    return found[1] if found is not None and found[0] == CHANGES_ANSWERS else None


def pairs_of(table: pd.DataFrame, workload: str) -> list[ProofPair]:
    """The objective of baseline and winner in each pair that counts: both measured, in one job and undisturbed.

    `table` is that of a stage of the proof (schemas.STAGE_TABLE).
    """
    rows = rows_of(table[table["workload"] == workload])
    if len(rows) < 2:
        return []
    base, found = (dict(zip(row["start_labels"], row["start_values"], strict=True)) for row in (rows[0], rows[-1]))
    return [
        ProofPair(base[label], found[label], order_of(label), apart)
        for label, apart in paired_labels(rows[0], rows[-1]).items()
        if min(base[label], found[label]) > 0
    ]


def promised_percent(study: Study, past: Sequence[PastStage], proposed: Configuration | None = None) -> float | None:
    """The change on the baseline in percent that the search found for what is proved, by default for its winner.

    None if it cannot be computed.
    """
    base, winner = _promised_rows(study, past, proposed)
    if base is None or winner is None or not base["objective_value"]:
        return None
    return 100 * (float(winner["objective_value"]) / float(base["objective_value"]) - 1)


def _promised_rows(
    study: Study, past: Sequence[PastStage], proposed: Configuration | None
) -> tuple[Row | None, Row | None]:
    """The last rows of baseline and winner that are fit to be compared, under the whole load."""
    fit, start = tried(study, past), baseline(study).configuration
    winner = fit.get(key_of(as_searched(study, proposed or past[-1].winner.configuration))) if past else None
    base = fit.get(key_of(start))
    return base and base.row, winner and winner.row


def search_noise(study: Study, past: Sequence[PastStage]) -> StartNoise:
    """The noise between server starts, pooled over all configurations that the search measured under the whole load."""
    starts: dict[str, dict[str, float]] = {}
    for stage in past:
        if stage.table is None:
            continue
        configurations = [key_of(candidate.configuration) for candidate in stage.plan.candidates]
        for row in rows_of(stage.table):
            values = {row["start_labels"][number]: row["start_values"][number] for number in counted_starts(row)}
            starts.setdefault(configurations[row["position"]], {}).update(values)
    return pooled_noise([*of.values()] for of in starts.values() if of and min(of.values()) > 0)


def judge(study: Study, table: pd.DataFrame, promised: float | None, workload: str | None = None) -> ProofVerdict:
    """The verdict of a proof on a workload, from the table of `confirm`; by default on the one that decides.

    If only the baseline cannot be used (it failed on all starts, is invalid or misses a constraint), the winner is
    better, without a change. If one of them fails on some starts, the verdict is `failed`.
    """
    workload = workload or study.objective.on
    pairs = pairs_of(table, workload)
    rows = table[table["workload"] == workload].sort_values("position")
    baseline_row, winner_row = (dict(row) for row in (rows.iloc[0], rows.iloc[-1]))
    if verdict := _saturated(baseline_row["outcome"], winner_row["outcome"]):
        why = "; ".join(str(row["message"]) for row in (baseline_row, winner_row) if row["outcome"] == SATURATED)
        found = judge_proof([], margin_percent=0, higher_is_better=True, promised_percent=promised, failed=why)
        return found.model_copy(update={"verdict": verdict, "why": why})
    wrong, wrong_baseline = unfit(study, winner_row), unfit(study, baseline_row)
    failed = None if wrong is None else f"the winner: {': '.join(wrong)}"
    if failed is None and is_barred(study, winner_row, baseline_row):
        failed = f"the winner: {too_many_failed(study, winner_row)}"
    if failed is None and wrong_baseline is not None:
        failed = f"the baseline: {': '.join(wrong_baseline)}"
        if wrong_baseline[0] != "failed" or not baseline_row["starts"]:
            found = judge_proof([], margin_percent=0, higher_is_better=True, promised_percent=promised, failed=failed)
            return found.model_copy(update={"verdict": BETTER, "why": f"only the winner can be used; {failed}"})
    planned = min(len(row["run_ids"]) for row in (baseline_row, winner_row))
    counting = set.intersection(*map(_undisturbed, (baseline_row, winner_row)))
    lost = planned - len(counting.union(paired_labels(baseline_row, winner_row)))
    uncounted = f"{lost} of its {planned} pairs do not count" if lost else None
    found = judge_proof(
        pairs,
        margin_percent=study.objective.margin_percent,
        higher_is_better=study.objective.sign > 0,
        promised_percent=promised,
        failed=failed,
        disturbed=uncounted if len(pairs) < 2 else None,
        of="visits" if any(engine.runtime == "none" for engine in study.engines.values()) else "fresh starts",
    )
    differs = unequal_places([baseline_row, winner_row])
    lengths = natural_lengths(winner_row, baseline_row, "the baseline's")
    place = differs and f"not measured at one place: {differs}"
    why = "; ".join(filter(None, [found.why, uncounted if pairs[1:] else None, place, lengths]))
    return found.model_copy(update={"unequal_places": differs, "why": why})


def _saturated(baseline_outcome: str, winner_outcome: str) -> str | None:
    """The verdict where a side was saturated at a lower rate of the curve and the other one was not, or both were."""
    if SATURATED not in (baseline_outcome, winner_outcome):
        return None
    if baseline_outcome == winner_outcome:
        return SAME
    if winner_outcome == SATURATED:
        return WORSE if baseline_outcome == "ok" else None
    return BETTER if winner_outcome == "ok" else None


def _undisturbed(row: Row) -> set[str]:
    return {label for label, delay in zip(row["start_labels"], row["start_delays_percent"], strict=True) if delay == 0}


def _failure(table: pd.DataFrame, workload: str, position: int) -> str | None:
    """How a side of the proof failed; None if it did not, or if there is no such side."""
    for row in rows_of(table[(table["workload"] == workload) & (table["position"] == position)]):
        if row["outcome"] != "ok":
            return f"{row['candidate']}: {row['reason']}: {row['message']}"
    return None
