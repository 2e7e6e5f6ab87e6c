"""Missing: questions that the baseline answered and the candidate did not.

A missing answer is a loss like a wrong one, also where no question is graded. It only speaks of losses: that no answer
is missing does not make the answers the same.
"""

from __future__ import annotations

from servelab.answers.comparison import CHANGES, Allowed, Comparison, Finding
from servelab.answers.instruments import INSTRUMENTS
from servelab.answers.paired_shares import mcnemar_p, paired_difference


class Missing:
    """See the module."""

    name = "missing"

    def judges(self, allowed: Allowed) -> bool:
        """See `Instrument.judges`: a missing answer is a wrong one to `tasks` too, so that chance counts once."""
        return False

    def find(self, comparison: Comparison) -> Finding | None:
        """See `Instrument.find`."""
        total = len(comparison.questions)
        missing = [key for key in comparison.questions if key not in comparison.candidate]
        share = paired_difference(len(missing), 0, total)
        decides = paired_difference(len(missing), 0, total, comparison.confidence)
        limit = comparison.allowed.task_loss_points
        other = comparison.floor
        floor = None if other is None else 100 * sum(key not in other for key in comparison.questions) / total
        beyond = 100 * decides.low > limit and mcnemar_p(len(missing), 0) <= 1 - comparison.confidence
        why = f"{len(missing):,} of {total:,} answers are missing ({100 * share.value:.1f} %, {limit:g} % allowed)"
        figure = share._replace(low=max(0.0, share.low)).figure(self.name, "missing", total, floor=floor, allowed=limit)
        return Finding(instrument=self.name, verdict=CHANGES if beyond else None, why=why, figures=[figure])


INSTRUMENTS.register("missing", Missing())
