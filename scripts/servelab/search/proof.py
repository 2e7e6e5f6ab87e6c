"""The proof of a search's winner: pairs of fresh starts of baseline and winner, and the interval of their change.

One pair is one start of each, next to each other on the same devices; the order alternates. What both of a pair share,
a slow hour or a busy neighbour, cancels in the pair's ratio.

How many pairs (`pairs_wanted`) is decided at three looks, from their scatter and never from their change: a rule that
looks at the change stops when the data happen to be good. A look at the scatter of the ratios alone would stop when
they happen to agree, and cover 91 to 93 % instead of 95. So the *levels* of the pairs (the mean of both sides) have to
scatter as little: if starts are equally noisy on both sides, levels and ratios are independent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from servelab.core.files import FiniteOrNull, JsonPart
from servelab.metrics.statistics import LEAST_RANKED, Interval, change_of_pairs, order_effect, percent_of, t_quantile
from servelab.search.decide import sum_of_squares
from servelab.search.decision import CANNOT_TELL

BASELINE, WINNER = "baseline", "winner"
LEAST_ASKED_PERCENT = 2.0
"""No proof aims at a narrower interval than ± this, unless the study does."""
SHARE_OF_PROMISE = 1 / 2
"""The interval's half width that a proof aims at, as a share of the promised gain."""


class ProofPair(NamedTuple):
    """The values of two starts next to each other, for one metric on one workload; same unit, above 0."""

    baseline: float
    winner: float
    order: int = 1
    """1 if the baseline was started first, -1 if the winner was."""
    apart: float = 0.0
    """Logarithm by which the winner may be too slow because it waited longer for CPUs; negative if the baseline is."""

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of winner / baseline. Raises `ValueError` on a value that is not above 0."""
        baseline, winner = self.logs
        return winner - baseline

    @property
    def logs(self) -> tuple[float, float]:
        """Logarithms of both values. Raises `ValueError` on a value that is not above 0."""
        if not all(0 < value < math.inf for value in self[:2]):
            raise ValueError(f"both values of a pair must be above 0: {self}")
        return math.log(self.baseline), math.log(self.winner)


def asked_half_width_percent(promised_percent: float, within_percent: float | None = None) -> float:
    """The half width of the interval to aim at, in percent: the study's, or half of the promised change, 2 at least.

    `promised_percent` is the change that the search found, of either sign.
    """
    if within_percent is not None:
        return within_percent
    return max(LEAST_ASKED_PERCENT, SHARE_OF_PROMISE * abs(promised_percent))


def looks(first: int, most: int) -> list[int]:
    """The numbers of pairs after which a proof may end: the first batch, half of the others, and all."""
    return sorted({first, min(most, (first + most + 1) // 2), max(first, most)})


def pairs_wanted(
    pairs: Sequence[ProofPair], asked_percent: float, looks: Sequence[int], levels: Sequence[float] = ()
) -> int:
    """How many pairs to have: those there are if their interval is as narrow as asked, else as many as the next look.

    `levels` are further levels (mean logarithms of both sides), such as the search's. The interval has to be as narrow
    by its own width, and by t(0.975, n - 1) · 2 · s / √n, where s is the standard deviation of the n levels.
    """
    change = proved_change(pairs)
    asked = math.log1p(asked_percent / 100)
    found = [*(statistics.fmean(pair.logs) for pair in pairs), *levels]
    if change.low is not None and change.high is not None and len(found) > 2:
        sd = math.sqrt(sum_of_squares(found) / (len(found) - 1))
        by_levels = t_quantile(0.975, len(pairs) - 1) * 2 * sd / math.sqrt(len(pairs))
        if max(by_levels, math.log1p(half_width_percent(change.low, change.high) / 100)) <= asked:
            return len(pairs)
    return next((look for look in looks if look > len(pairs)), len(pairs))


def pairs_for_promise(
    pairs: Sequence[ProofPair],
    promised_percent: float,
    within_percent: float | None,
    looks: Sequence[int],
    levels: Sequence[float] = (),
) -> int:
    """The same for a promise of the search. One barely above the narrowest width asked gets all pairs.

    A few starts, all alike, do not show that a small gain holds: one start in eight may be slower.
    """
    is_small = within_percent is None and abs(promised_percent) < 2 * LEAST_ASKED_PERCENT
    asked = 0.0 if is_small else asked_half_width_percent(promised_percent, within_percent)
    return pairs_wanted(pairs, asked, looks, levels)


def proved_change(pairs: Sequence[ProofPair]) -> Interval:
    """Change of the winner against the baseline in percent, with its 95 % interval: see `change_of_pairs`.

    Raises `ValueError` on no pairs.
    """
    apart = statistics.fmean(pair.apart for pair in pairs) if pairs else 0.0
    return change_of_pairs([pair.log_ratio for pair in pairs], [pair.order for pair in pairs], apart)


def half_width_percent(low: float, high: float) -> float:
    """Half the width of a change's interval: the smallest change that would have excluded zero with this noise.

    `low` and `high` are in percent; halved between logarithms: 100 · (√((1 + high / 100) / (1 + low / 100)) - 1).
    """
    return percent_of((math.log1p(high / 100) - math.log1p(low / 100)) / 2)


_NOISIER = (199, 47, 23, 15, 11, 8.9, 7.5, 6.5)
"""For 3, 4, … starts a side: variances whose ratio is larger differ (F, 1 % on both sides together)."""
_APART = (44, 15, 9.5, 7.3, 6.1, 5.2, 4.8, 4.4)
"""The largest gap between two starts of a side, in standard deviations of what is on either side of it, that normal
noise exceeds in 1 % (simulated)."""
_LEAST_GAP = math.log(1.03)


def uneven_starts(pairs: Sequence[ProofPair]) -> str | None:
    """How the starts of a side differ among themselves, more than noise explains; None if they do not.

    A side may scatter far more than the other, or have starts of two kinds.
    """
    if len(pairs) < 3:
        return None
    at = min(len(pairs), len(_NOISIER) + 2) - 3
    sides = dict(zip((BASELINE, WINNER), map(sorted, zip(*(pair.logs for pair in pairs), strict=True)), strict=True))
    groups = {name: _split(logs) for name, logs in sides.items()}
    squares = sum(sum_of_squares(group) for both in groups.values() for group in both)
    sd = math.sqrt(squares / (2 * len(pairs) - 4))
    spread = {name: sum_of_squares(logs) for name, logs in sides.items()}
    found = []
    for name, (low, high) in groups.items():
        gap, other = high[0] - low[-1], spread[BASELINE if name == WINNER else WINNER]
        is_noisier = spread[name] > max(_NOISIER[at] * other, (len(pairs) - 1) * _LEAST_GAP**2 / 4)
        if gap > max(_APART[at] * sd, _LEAST_GAP) or (is_noisier and gap > _LEAST_GAP):
            few, word = (low, "lower") if len(low) <= len(high) else (high, "higher")
            apart = abs(percent_of(statistics.fmean(few) - statistics.fmean(high if few is low else low)))
            verb = "is" if len(few) == 1 else "are"
            found.append(f"{len(few)} of {len(pairs)} starts of the {name} {verb} {apart:.0f} % {word}")
        elif is_noisier:
            times = f"{math.sqrt(spread[name] / other):.0f} times" if other else "far more than"
            found.append(f"the starts of the {name} scatter {times} as much as the other side's")
    return "; ".join(found) or None


_SLOW_SHARE, _SLOWER = 0.12, 0.2
"""Share of slow starts on the winner's side that a proof should not overlook, and how much slower they are."""
_UNSEEN_PERCENT = percent_of(-_SLOW_SHARE * math.log1p(-_SLOWER))
"""The gain that they undo on average; a proof that drew none of them cannot see it."""


def _split(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Sorted values below and above their largest gap."""
    at = max(range(1, len(values)), key=lambda position: values[position] - values[position - 1])
    return values[:at], values[at:]


BETTER = "better"
WORSE = "worse"
SAME = "same"
FAILED = "failed"
DISTURBED = "disturbed"
VERDICTS = (BETTER, WORSE, SAME, CANNOT_TELL, FAILED, DISTURBED)


class ProofVerdict(JsonPart):
    """Result of a proof for one metric on one workload; changes are the winner against the baseline, in percent."""

    verdict: str = Field(
        description="`better`, `worse`, `same`, `cannot tell`, `failed` or `disturbed`; docs/search.md explains them."
    )
    why: str = Field(description="Reason for the verdict, with what the search promised.")
    pairs: int = Field(description="Pairs of starts that were compared.")
    promised_change_percent: float | None = Field(
        description="Change that the search measured on single starts; null if it has none. It is no claim."
    )
    change_percent: float | None = Field(description="Change that the pairs found; null if there is none.")
    change_ci95_low_percent: FiniteOrNull = Field(description="Lower end of its 95 % interval; null below two pairs.")
    change_ci95_high_percent: FiniteOrNull = Field(description="Upper end of it.")
    smallest_change_percent: FiniteOrNull = Field(
        description="Smallest change that could have been seen: half the width of the interval; null without one."
    )
    second_start_percent: FiniteOrNull = Field(
        None,
        description="Change of the second start of a pair on the first, which the figures are free of; null below 6.",
    )
    uneven_starts: str | None = Field(
        None, description="A warning: how the starts of a side differ among themselves; null if as noise explains."
    )
    unequal_places: str | None = Field(
        None, description="A warning: how the places of the runs compared differ; null if they do not (cluster.md)."
    )

    @property
    def holds(self) -> bool:
        """Whether the winner may be recommended; otherwise the baseline is kept."""
        return self.verdict == BETTER


def judge_proof(
    pairs: Sequence[ProofPair],
    *,
    margin_percent: float,
    higher_is_better: bool,
    promised_percent: float | None = None,
    failed: str | None = None,
    disturbed: str | None = None,
    of: str = "fresh starts",
) -> ProofVerdict:
    """The verdict on the winner, from the `pairs` whose sides are both sound; `of` says of what they are.

    `failed` says which side failed and how, `disturbed` what disturbed pairs also when they were measured again; None
    if neither happened. A failure weighs more. Both are verdicts of their own, and the figures of the sound pairs are
    still given. Without either:

    - `better`: the interval excludes zero and the gain exceeds the margin.
    - `worse`: the interval excludes zero and the loss exceeds the margin.
    - `same`: the interval is within ± margin.
    - `cannot tell`: everything else.

    Raises `ValueError` on a pair with a value that is not above 0.
    """
    change = proved_change(pairs) if pairs else None
    if failed is not None:
        verdict, reason = FAILED, f"failed in the proof: {failed}"
    elif disturbed is not None:
        verdict, reason = DISTURBED, f"the proof was disturbed, also when it was measured again: {disturbed}"
    else:
        verdict, reason = _compare(change, margin_percent, higher_is_better)
    low, high = (None, None) if change is None else change[1:]
    effect = order_effect([pair.log_ratio for pair in pairs], [pair.order for pair in pairs])
    uneven = uneven_starts(pairs)
    if uneven:
        reason = f"{reason} (uneven starts: {uneven})"
    elif verdict == BETTER and min(abs(low or 0), abs(high or 0)) <= _UNSEEN_PERCENT:
        missed = f"{len(pairs)} pairs miss such in {100 * (1 - _SLOW_SHARE) ** len(pairs):.0f} %"
        kind, slow = of.split()[-1], f"{100 * _SLOW_SHARE:.0f} % of them {100 * _SLOWER:.0f} % slower"
        reason += f" if the winner has no slower {kind} than were drawn ({slow} may undo it, and {missed})"
    return ProofVerdict(
        verdict=verdict,
        why=_side_by_side(
            reason, promised_percent, change, f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'} of {of}"
        ),
        pairs=len(pairs),
        promised_change_percent=promised_percent,
        change_percent=None if change is None else change.value,
        change_ci95_low_percent=low,
        change_ci95_high_percent=high,
        second_start_percent=None if effect is None or len(pairs) < LEAST_RANKED else percent_of(effect),
        uneven_starts=uneven,
        smallest_change_percent=None if low is None or high is None else half_width_percent(low, high),
    )


def _compare(change: Interval | None, margin: float, higher_is_better: bool) -> tuple[str, str]:
    if change is None or change.low is None or change.high is None:
        return CANNOT_TELL, "fewer than two pairs are sound"
    seen = f"a change of {half_width_percent(change.low, change.high):.1f} % or more could have been seen"
    if -margin <= change.low and change.high <= margin:
        return SAME, f"the difference is within the margin of {margin:g} %"
    if change.low <= 0 <= change.high:
        return CANNOT_TELL, f"the interval includes no change; {seen}"
    if abs(change.value) <= margin:
        return CANNOT_TELL, f"the change may be smaller or larger than the margin of {margin:g} %; {seen}"
    return (
        (BETTER, "the gain holds")
        if (change.value > 0) == higher_is_better
        else (WORSE, "the winner of the search is worse than the baseline")
    )


def _side_by_side(reason: str, promised: float | None, change: Interval | None, pairs: str) -> str:
    parts = [] if promised is None else [f"the search promised {promised:+.1f} %"]
    if change is not None:
        interval = "" if change.low is None else f" (95 % interval {change.low:+.1f} to {change.high:+.1f} %)"
        parts.append(f"{pairs} found {change.value:+.1f} %{interval}")
    return f"{reason}: {', '.join(parts)}" if parts else reason
