"""Adaptive: many changes at once, then what a model of all of them expects to be best.

No option is decided while the others are at the baseline, so options that only help together are found. What is
measured stays in the plan: each stage decides on everything that was measured before it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from servelab.search.decide import beyond_noise, decide_stage
from servelab.search.decision import Decision, Outline, PastStage, Verdict
from servelab.search.failures import probability_of_failure
from servelab.search.likeness import Floats
from servelab.search.options_space import Knowledge, Space, design, space_of
from servelab.search.planning import make_plan
from servelab.search.proof_plan import by_second
from servelab.search.strategies import STRATEGIES
from servelab.study.configuration import Incumbent, baseline, difference, key_of
from servelab.study.plan import Plan
from servelab.study.predictions import Predictions
from servelab.study.project import Project
from servelab.study.study import Study

_DESIGN, _DESIGN_TITLE = "design", "A few combinations, before any value is known"
_FEWEST, _MOST = 8, 60
_OF_ROOT, _OF_ALL = 3.0, 0.45
"""Visits by default: so many times the root of the number of combinations, at most this share of it, and between fewest
and most: 11 of 25, 21 of 48, 60 of 1,000."""
_STAGES = 24
"""Most stages by default, besides the design. What is chosen one by one, with all that is known, finds more than what
is chosen at once, and crashes less: the first choices are combinations of many changes, and each may be a cause."""
_SPREAD = 6
"""As long as fewer are measured and nothing failed, what leaves most open is chosen: a model of so few may be wrong."""
_LEFT = 4
"""Visits that must be left after each option was changed alone."""
_EARLY = 6
"""Visits that are left after each choice was tried, for combinations with those that others had kept from working."""
_LAST = 3
"""So many of the last visits go to what was measured before, if another start of it is worth more than what is new."""
_LITTLE = 0.05
"""As long as nothing gains more or failed, every other visit goes to what leaves most open: some choices gain only
together."""
_FAILURES = 4
"""A choice that failed alone is given up after so many failures, if there are two visits for each change."""
_WORTH = 0.00002
_OF = 48
"""A combination of so many is worth measuring if it is expected to gain more than this beyond the margin, as a share.
The more there are, the less each promises alone: it falls with their number. Ten times as much if it probably fails."""
_LIKELY = 0.5
"""A combination that fails with this probability is no part of the design, nor takes the place of another start."""
_AS_LIKELY = 0.9
"""Combinations that work with this share of the best probability are taken to be as likely to work."""
_SHORTLIST = 400
"""Combinations from which those that are measured together are taken: with the largest expected gain, or any."""
_SAME_PERCENT = 0.2
"""A difference that is not worth another change of the configuration."""


class Adaptive:
    """Stages `design`, and `refine-1` … until the visits are used."""

    name = "adaptive"

    def outlines(self, study: Study) -> list[Outline]:
        space, first = space_of(study), _design_size(study)
        names = [variant.name for variant in space.variants[1:]] if len(space) == first else []
        stages = range(1, 2 - (first - visits_of(study)) // _batch(study))
        return [Outline(_DESIGN, _DESIGN_TITLE, names), *(Outline(f"refine-{at}", _title(at), []) for at in stages)]

    def summary(self, study: Study) -> str | None:
        first, visits, count = _design_size(study), visits_of(study), len(space_of(study))
        if count <= first:
            return f"search: adaptive, all {count} combinations"
        return f"search: adaptive, {first} of {count} combinations, then up to {visits - first} that promise most"

    def plan(self, project: Project, stage: str, past: Sequence[PastStage]) -> Plan:
        """See `Strategy.plan`. A stage's candidates are all that earlier ones measured, and what it adds."""
        study, space = project.study, space_of(project.study)
        visits, predictions = visits_of(study), project.predictions
        # a change that crashes in much company costs too many of few visits
        is_few = len(space.counts) + _LEFT <= visits < 2 * space.changes
        if not past:
            first = _Predicted(space, study, predictions) if predictions else _Design(space, 1 if is_few else None)
            return _filled(project, stage, _DESIGN_TITLE, baseline(study), {0: 1}, first, _design_size(study))
        last, title = past[-1], _title(len(past))
        if not last.plan.applies or any(each.not_run for each in last.plan.candidates):
            return make_plan(project, stage, title, last.winner, [], last.plan.reason or "the budget is used")
        positions = space.positions(last.plan)
        refused = _refused(space, last.plan)
        started = [max(1, len({run.start for run in each.runs})) for each in last.plan.candidates]
        starts = dict(zip(positions, started, strict=True))
        measured = len(positions) - len(refused)
        left = visits - sum(started) + len(refused)
        most = measured + min(_batch(study), left)
        if last.table is None:
            return _filled(project, stage, title, last.winner, starts, _Design(space), most)
        turns = [(study, last.table), *([(study.second, by_second(last.table))] if study.second else [])]
        for by, table in turns if len(past) % 2 else turns[::-1]:
            knowledge = Knowledge(by, space, last.plan, table, predictions)
            promising = _Promising(space, knowledge, study.objective.margin_percent, measured + left)
            chooser: _Chooser = promising
            title, by_whom = _title(len(past)), f", by {by.objective.name}" if study.second else ""
            if measured < _SPREAD and not is_few and not knowledge.failed_with([]):
                chooser = _Design(space)
                title = f"Refinement {len(past)}: what differs most from the runs so far, which are few for a model"
            elif visits >= len(space.counts) + _LEFT and (single := _OneChange(space, knowledge)).left(positions):
                chooser, title = single, f"Refinement {len(past)}: one change of the baseline"
            plan = _filled(project, stage, title + by_whom, last.winner, starts, chooser, most)
            new = [at for at in space.positions(plan) if at not in starts]
            is_last = chooser is promising and left <= _LAST
            if left > 0 and (is_last or not new) and (again := promising.again(new, positions, refused, is_few)):
                starts |= {at: starts[at] + 1 for at in again[: min(_batch(study), left)]}
                title = f"Refinement {len(past)}: another start of those that cannot be told from the best"
                return _filled(project, stage, title + by_whom, last.winner, starts, chooser, 0)
            if new:
                return plan.model_copy(update={"predicted": knowledge.predicted_far_below(plan)})
        why = f"no other of the {len(space)} combinations promises more than the margin over {last.winner.candidate}"
        if left <= 0:
            why = f"the {visits} starts that the search may take are taken"
        elif len(positions) == len(space):
            why = f"all {len(space)} combinations are measured"
        return make_plan(project, stage, title, last.winner, [], why)

    def decide(self, study: Study, plan: Plan, table: pd.DataFrame) -> Decision:
        """The best that is measured, by the expectation of the model; see `_choose`."""
        decision = decide_stage(study, plan, table).model_copy(update={"predicted": plan.predicted})
        knowledge = Knowledge(study, space_of(study), plan, table)
        if not plan.applies or not knowledge.fit or not knowledge.is_open:
            return decision
        return _choose(study, plan, decision, knowledge)


ADAPTIVE = Adaptive()
STRATEGIES.register(ADAPTIVE.name, ADAPTIVE)


def visits_of(study: Study) -> int:
    """Most starts that the search of a study takes, the baseline's included."""
    count = len(space_of(study))
    by_default = max(_FEWEST, min(round(_OF_ROOT * math.sqrt(count)), int(_OF_ALL * count), _MOST))
    return min(count, study.search.visits or by_default)


def _design_size(study: Study) -> int:
    """The baseline and one batch; all if visits are enough."""
    visits = visits_of(study)
    return visits if visits == len(space_of(study)) else min(visits, 1 + _batch(study))


def _batch(study: Study) -> int:
    """How many configurations a stage adds."""
    return study.search.batch or max(1, -(-(visits_of(study) - 1) // _STAGES))


class _Design:
    """Chooses what leaves most open, before any value is known; of up to `most` changes of the baseline, or any."""

    def __init__(self, space: Space, most: int | None = None) -> None:
        self.space, self._most = space, most or len(space.counts)

    def choose(self, count: int, taken: Sequence[int], refused: Sequence[int]) -> list[int]:
        """`count` positions that are not `taken`; an engine `refused` some of these."""
        accepted = [at for at in taken if at not in refused]
        levels, some = self.space.levels, np.arange(len(self.space))
        likely = probability_of_failure(levels, levels[accepted], levels[list(refused)], self.space.scales) < _LIKELY
        likely &= (levels > 0).sum(1) <= self._most
        likely[list(taken)] = False
        if not likely.any():
            likely = ~np.isin(some, taken)
        if len(some) > _SHORTLIST:
            drawn = np.random.default_rng(0).choice(np.flatnonzero(likely), min(_SHORTLIST, likely.sum()), False)
            some = np.array([*accepted, *np.sort(drawn)])
        known = [int(np.flatnonzero(some == at)[0]) for at in accepted]
        return [int(some[at]) for at in design(levels[some], self.space.counts, count, known, likely[some])]


class _Predicted(_Design):
    """Chooses what is predicted to be best."""

    def __init__(self, space: Space, study: Study, predictions: Predictions) -> None:
        super().__init__(space)
        self._logs = np.nan_to_num(space.prior(study, predictions).logs, nan=-np.inf)

    def choose(self, count: int, taken: Sequence[int], refused: Sequence[int]) -> list[int]:
        """As `_Design.choose`; what is not predicted is chosen as without a prior."""
        best = [
            int(at) for at in np.argsort(-self._logs, kind="stable") if at not in taken and self._logs[at] > -np.inf
        ]
        found = best[:count]
        return found + (super().choose(count - len(found), [*taken, *found], refused) if len(found) < count else [])


class _OneChange:
    """Chooses for each option one change of the baseline alone, the one that promises most."""

    def __init__(self, space: Space, knowledge: Knowledge) -> None:
        self.space, self._knowledge = space, knowledge

    def left(self, taken: Sequence[int]) -> list[int]:
        """Positions that change the baseline in one option only, of the options that none of `taken` changes so.

        As long as nothing failed, options with several values on a scale are left out: one value says little of them.
        """
        levels, options = self.space.levels, self.space.levels.argmax(1)
        is_one = (levels > 0).sum(1) == 1
        done = {int(options[at]) for at in taken if is_one[at]}
        if not self._knowledge.failed_with([]):
            scales = enumerate(self.space.scales)
            done |= {at for at, scale in scales if scale is not None and np.isfinite(scale).sum() > 2}
        found = is_one & ~np.isin(options, list(done)) & ~self._knowledge.left_out
        return [int(at) for at in np.flatnonzero(found)]

    def choose(self, count: int, taken: Sequence[int], refused: Sequence[int]) -> list[int]:
        """As `_Design.choose`; fewer if there are no more such changes."""
        model, levels = self._knowledge.surrogate, self.space.levels
        gains = self._knowledge.probability_of_working(levels, refused)
        if model is not None:
            gains *= model.expected_gains(levels, self._knowledge.best())
        found: list[int] = []
        while len(found) < count and (left := self.left([*taken, *found])):
            found.append(max(left, key=lambda at: float(gains[at])))
        return found


class _Promising:
    """Chooses what a model expects to gain most, as long as it expects some gain beyond the margin.

    A choice that never worked, or only in slow company, is still tried: its effect may be unlike those of the others.
    Enough of the `visits` are kept for that, and for combinations with it.
    """

    def __init__(self, space: Space, knowledge: Knowledge, margin_percent: float, visits: int) -> None:
        self.space, self._knowledge, self._margin = space, knowledge, math.log1p(margin_percent / 100)
        self._visits = visits

    def choose(self, count: int, taken: Sequence[int], refused: Sequence[int]) -> list[int]:
        """As `_Design.choose`; fewer, or none, where nothing promises more."""
        model, levels = self._knowledge.surrogate, self.space.levels
        if model is None:
            return _Design(self.space).choose(count, taken, self._knowledge.failed_with(refused))
        best = self._knowledge.best()
        is_little = (best - model.at(levels[:1]).mean[:, 0]).mean() < _LITTLE
        works = self._knowledge.probability_of_working(levels, refused)
        works[list(taken)] = 0
        works[self._knowledge.left_out] = 0
        gains = works * model.expected_gains(levels, best)
        listed = np.argsort(-gains, kind="stable")[: min(_SHORTLIST, int((gains > 0).sum()))]
        prediction, works = model.at(levels[listed]), works[listed]
        worth = _WORTH * min(1.0, _OF / len(levels))
        found: list[int] = []
        while len(found) < min(count, len(listed)):
            gains = works * prediction.expected_gain(best)
            left = self._visits - len(taken) + len(refused) - len(found)
            is_owed, needed = self._owed(listed, works, [*taken, *found])
            chances = works * prediction.expected_gain(best + self._margin)
            promises = (chances >= worth * np.where(works >= _LIKELY, 1, 10)).any()
            if is_owed.any() and (not promises or left <= needed + _EARLY):
                gains = np.where(is_owed, works * np.exp(prediction.expected()), 0.0)
            elif not promises:
                break
            if not gains.any():
                break
            position = int(np.argmax(gains))
            found.append(int(listed[position]))
            works[position] = 0
            best = np.maximum(best, prediction.mean[:, position])
            prediction.believe(position)
        if is_little and found and len(taken) % 2 and not self._knowledge.failed_with(refused):
            return _Design(self.space).choose(len(found), taken, refused)
        return found

    def again(self, new: Sequence[int], taken: Sequence[int], refused: Sequence[int], is_few: bool) -> list[int]:
        """Of `taken` the best and those that may be better by more than the margin, by what another start is worth.

        What may be is within 1.5 standard deviations. None while a choice has to be tried, and none worth less than a
        `new` combination (`Prediction.worth`) that is likely to work and, if visits are few, expected to beat the best.
        """
        model, works, levels = self._knowledge.surrogate, self._knowledge.working, self.space.levels
        owes = any(self._knowledge.untried(taken, 1)) or any(self._knowledge.slow(taken))
        if model is None or not works or (new and owes):
            return []
        prediction, known = model.at(levels[[*works, *new]]), len(works)
        best = int(prediction.expected()[:known].argmax())
        gains, scatters = prediction.differences(best)
        may_be = (gains + 1.5 * scatters)[:known] > self._margin
        may_be[best] = may_be.any()
        worth = prediction.worth(known)
        likely = self._knowledge.probability_of_working(levels, refused)[list(new)]
        counts = (likely >= _LIKELY) & (not is_few or gains[known:] > 0)
        least = (worth[known:] * likely * counts).max(initial=0)
        return [works[at] for at in np.argsort(-worth[:known], kind="stable") if may_be[at] and worth[at] >= least]

    def _owed(self, listed: NDArray[np.int64], works: Floats, taken: Sequence[int]) -> tuple[NDArray[np.bool_], int]:
        """Which positions try a choice that still has to be tried, and how many visits such choices take.

        A choice that never worked is tried in new company, where it is about as likely to work as anywhere; one that
        was slow, alone.
        """
        failures = _FAILURES if self._visits > 2 * sum(count - 1 for count in self.space.counts) else 1
        untried, slow = list(self._knowledge.untried(taken, failures)), list(self._knowledge.slow(taken))
        levels = self.space.levels[listed]
        owed = np.zeros(len(levels), dtype=bool)
        for _, _, company in untried:
            company = np.where(works > 0, company[listed], -1)
            likely = np.where((company >= 0) & (company == company.max()), works, 0.0)
            owed |= (likely > 0) & (likely >= _AS_LIKELY * likely.max())
        for option, choice in slow:
            has = (levels[:, option] == choice) & (works > 0)
            changes = np.where(has, (levels > 0).sum(1), levels.shape[1] + 1)
            owed |= has & (changes == changes.min())
        of_option = Counter(option for option, *_ in untried).values()
        needed = sum(of_option) if self._knowledge.failed_with([]) else max(of_option, default=0)
        return owed, needed + len(slow)


_Chooser = _Design | _OneChange | _Promising


def _filled(
    project: Project,
    stage: str,
    title: str,
    incumbent: Incumbent,
    starts: Mapping[int, int],
    chooser: _Chooser,
    most: int,
) -> Plan:
    """A plan of combinations with so many `starts` each and of others that are chosen, `most` configurations together.

    What an engine refuses costs nothing: it is listed, and another combination takes its place.
    """
    space, taken, start = chooser.space, list(starts), incumbent.configuration
    while True:
        found = [(space.variants[at], starts.get(at, 1)) for at in taken]
        own = next(number for each, number in found if key_of(each.configuration) == key_of(start))
        variants = [each._replace(changes=difference(start, each.configuration), starts=to) for each, to in found]
        plan = make_plan(project, stage, title, incumbent, variants, incumbent_starts=own)
        refused = _refused(space, plan)
        missing = most - (len(taken) - len(refused))
        new = chooser.choose(missing, taken, refused) if missing > 0 else []
        if not new:
            return plan
        taken += new


def _refused(space: Space, plan: Plan) -> list[int]:
    """Positions of the candidates of a plan that an engine refuses."""
    return [at for at, each in zip(space.positions(plan), plan.candidates, strict=True) if each.refused is not None]


def _choose(study: Study, plan: Plan, decision: Decision, knowledge: Knowledge) -> Decision:
    """The decision with the model's winner and verdicts, in place of those by single measurements.

    The baseline wins unless the best is expected to beat it by more than the margin. Of those that are expected to be
    as good as the best, the one that changes least wins.
    """
    prediction = knowledge.prediction()
    rows = {row: number for number, row in enumerate(knowledge.fit)}
    means = prediction.expected().round(9)
    best = int(means.argmax())
    margin, same = (math.log1p(each / 100) for each in (study.objective.margin_percent, _SAME_PERCENT))
    equals = [number for number in rows.values() if means[number] >= means[best] - same]
    base = None if knowledge.baseline is None else rows.get(knowledge.baseline)
    if base is not None:
        equals = [number for number in equals if means[number] - means[base] > margin] or [base]
    changes = [knowledge.changes(row) for row in knowledge.fit]
    winner = knowledge.fit[min(equals, key=lambda number: (changes[number], -means[number]))]
    verdicts = list(decision.candidates)
    if 0 in rows:
        gains, scatters = prediction.differences(rows[0])
        for row, number in rows.items():
            if row:
                found = float(gains[number]), float(scatters[number])
                verdicts[row] = _judged(study, verdicts[row], *found, len(plan.run_ids()))
    reason = f"{verdicts[winner].candidate}: {verdicts[winner].why}"
    if not winner:
        reason = f"no candidate is expected to beat {verdicts[0].candidate} beyond noise and margin"
    elif winner == knowledge.baseline:
        reason = f"nothing is expected to beat the baseline beyond noise and margin; {reason}"
    return decision.won_by(winner, verdicts, reason)


def _judged(study: Study, verdict: Verdict, gain: float, scatter: float, count: int) -> Verdict:
    """A verdict by what the model expects: `gain` over the incumbent as a logarithm, give or take `scatter`."""
    change = 100 * math.expm1(study.objective.sign * gain)
    word = "within noise" if abs(gain) <= scatter else beyond_noise(study, change, "")[0]
    expected = f"{change:+.1f} % ± {100 * math.expm1(scatter):.1f} %"
    why = f"{verdict.why}; a model of all {count} runs expects {expected}"
    return verdict.model_copy(update={"verdict": word, "why": why})


def _title(number: int) -> str:
    return f"Refinement {number}: what a model of the runs so far expects to be best"
