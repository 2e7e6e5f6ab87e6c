"""What to use on each workload, and where the winner loses. The templates `guards.*.j2` show it."""

from __future__ import annotations

from dataclasses import dataclass

from servelab.search.recommended import BestOfWorkload, Recommended


@dataclass(frozen=True)
class GuardSection:
    """What the report shows for each workload."""

    verdict: str
    losses: list[str]
    """Workloads on which the winner loses more than the study allows, with the figures."""
    best: list[BestOfWorkload]
    """The configuration to use on each workload; empty if it is the winner on all."""


def guard_section(recommended: Recommended) -> GuardSection | None:
    """None for a study with one workload, which has no other to compare with."""
    if len(recommended.by_workload) < 2:
        return None
    losses = [f"{row.title}: {row.guard_why}" for row in recommended.improvements if row.guard == "loses"]
    unclear = [row.title for row in recommended.improvements if row.guard == "unclear"]
    differs = any(not best.is_recommended for best in recommended.by_workload)
    most = f"{recommended.max_loss_percent:g} %"
    if not recommended.changed:
        verdict = "Use the baseline on every workload."
    elif losses:
        count = f"{len(losses)} workload{'' if len(losses) == 1 else 's'}"
        verdict = f"The optimized configuration loses more than {most} on {count}."
    else:
        verdict = f"The optimized configuration loses more than {most} on no workload."
    if unclear:
        verdict += f" Noise is too large to decide on {', '.join(unclear)}."
    return GuardSection(verdict, losses, recommended.by_workload if differs else [])
