"""The next best of a search, if its winner changed its answers in the first pairs of its proof.

Some settings should leave answers as they are, so nobody asks about them before the proof. If a winner with such a
setting loses right answers after all, its other measured settings may be as broken. So the next best is a configuration
that was itself asked, or one that has none of the settings that may be to blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from servelab.answers.comparison import CANNOT_TELL, CHANGES, SAME
from servelab.core.identity import canonical_json
from servelab.metrics.definitions import METRICS
from servelab.search.decide import StartNoise, ahead, can_win, relative_change, unfit
from servelab.search.decision import Row, rows_of, settle, soundest
from servelab.search.strategy import PastStage
from servelab.study.configuration import Configuration, Incumbent, baseline, difference, key_of
from servelab.study.study import Study


class _Tried(NamedTuple):
    """A configuration that the search measured under the whole load, and is fit to win."""

    incumbent: Incumbent
    row: Row
    """Its last row of schemas.STAGE_TABLE."""

    @property
    def kept_answers(self) -> bool:
        """Whether it was asked, and no loss was found."""
        return self.row.get("answers") in (SAME, CANNOT_TELL)


def next_best(study: Study, past: Sequence[PastStage], loser: Configuration, noise: StartNoise) -> Incumbent | None:
    """The best configuration besides `loser` that is better than the baseline by the rule of the search; None if none.

    `noise` is that of the search's server starts.
    """
    start = baseline(study).configuration
    tried = _tried(study, past)
    base = tried.pop(key_of(start), None)
    tried.pop(key_of(loser), None)
    if base is None or not base.row["objective_value"]:
        return None
    suspects = _choices(start, loser)
    for each in tried.values():
        if each.kept_answers:
            suspects = suspects - _choices(start, each.incumbent.configuration)
    suspects = suspects or _choices(start, loser)  # each alone is sound, so any of them may be to blame
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    sound = [
        each
        for each in tried.values()
        if (each.kept_answers or suspects.isdisjoint(_choices(start, each.incumbent.configuration)))
        and _is_better(study, each.row, base.row, noise, sign)
    ]
    rows = [each.row for each in sound]
    chosen = soundest(study, rows, range(len(rows)))
    best = max(chosen, key=lambda position: sign * float(rows[position]["objective_value"]), default=None)
    return None if best is None else sound[best].incumbent


def _tried(study: Study, past: Sequence[PastStage]) -> dict[str, _Tried]:
    """What was measured and is fit, by `key_of`; a configuration that changed answers anywhere is not."""
    found: dict[str, _Tried] = {}
    changed = set()
    for stage in past:
        if stage.table is None:
            continue
        rows: dict[str, Row] = {row["candidate"]: row for row in rows_of(stage.table)}
        for candidate in stage.plan.candidates:
            row, key = rows.get(candidate.candidate), key_of(candidate.configuration)
            if row is None:
                continue
            if row.get("answers") == CHANGES:
                changed.add(key)
            elif unfit(study, row) is None:
                incumbent = Incumbent(candidate=candidate.candidate, configuration=candidate.configuration)
                found[key] = _Tried(incumbent, row)
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
