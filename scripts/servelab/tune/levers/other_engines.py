"""Another engine, at its own defaults."""

from __future__ import annotations

from collections.abc import Sequence

from servelab.tune.levers import LEVERS, Lever, Proposal
from servelab.tune.situation import Situation


def propose(now: Situation) -> Sequence[Proposal] | str:
    """One candidate for each engine of the study."""
    if not now.other_engines:
        return "no other engine was asked for (--engines, --all-engines)"
    reason = "14 of 25 published tunings were won by another engine than the first"
    return [
        Proposal(f"{name} at its defaults", reason, "×0.4 to ×1.9", engine=name, is_sure=True)
        for name in now.other_engines
    ]


LEVERS.register("engine", Lever("engine", 1, "Another engine", propose, "GPUStack, 25 tuning pages"))
