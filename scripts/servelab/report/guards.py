"""What to use on each workload, and where the winner loses: the guard workloads in the report.

`report_content` puts `guard_section(recommended)` under the name `guards`, from `recommended.json`; `report.html.j2`
then shows it with `{% include "guards.html.j2" %}` and `report.md.j2` with `{% include "guards.md.j2" %}`. Of the names
around them the two templates use `origin`, and in Markdown the filter `cell`.
"""

from __future__ import annotations

from dataclasses import dataclass

from servelab.report.inputs import BestOfWorkload, Recommended


@dataclass(frozen=True)
class GuardSection:
    """What the report says of each workload."""

    verdict: str
    losses: list[str]
    """Workloads on which the winner loses more than the study allows, with the figures."""
    best: list[BestOfWorkload]
    """The configuration to use on each workload; empty where it is the winner on all."""


def guard_section(recommended: Recommended) -> GuardSection | None:
    """None where there is a single workload, which guards nothing."""
    if len(recommended.by_workload) < 2:
        return None
    losses = [f"{row.title}: {row.guard_why}" for row in recommended.improvements if row.guard == "loses"]
    unclear = [row.title for row in recommended.improvements if row.guard == "unclear"]
    differs = any(not best.is_winner for best in recommended.by_workload)
    most = f"{recommended.max_loss_percent:g} %"
    if not recommended.changed:
        verdict = "The baseline is what to use on every workload."
    elif losses:
        count = f"{len(losses)} workload{'' if len(losses) == 1 else 's'}"
        verdict = f"The optimized configuration loses more than {most} on {count}."
    else:
        verdict = f"The optimized configuration loses more than {most} on no workload."
    if unclear:
        verdict += f" The noise is too large to tell on {', '.join(unclear)}."
    return GuardSection(verdict, losses, recommended.by_workload if differs else [])
