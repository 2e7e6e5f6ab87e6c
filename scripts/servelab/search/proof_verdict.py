"""What a proof found, in words: verdict and reason, with what the search promised and what was found side by side."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from servelab.core.json_file import FiniteOrNull, JsonPart
from servelab.metrics.statistics import Interval
from servelab.search.proof import Pair, half_width_percent, proved_change
from servelab.search.standing import CANNOT_TELL

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
    unequal_places: str | None = Field(
        None, description="A warning: how the places of the runs compared differ; null if they do not (devices.md)."
    )

    @property
    def holds(self) -> bool:
        """Whether the winner may be recommended; otherwise the baseline is kept."""
        return self.verdict == BETTER


def judge_proof(
    pairs: Sequence[Pair],
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
    return ProofVerdict(
        verdict=verdict,
        why=_side_by_side(reason, promised_percent, change, f"{_counted(len(pairs))} of {of}"),
        pairs=len(pairs),
        promised_change_percent=promised_percent,
        change_percent=None if change is None else change.value,
        change_ci95_low_percent=low,
        change_ci95_high_percent=high,
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


def _counted(pairs: int) -> str:
    return "1 pair" if pairs == 1 else f"{pairs} pairs"
