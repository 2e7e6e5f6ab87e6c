"""Could the devices have served this at all?"""

from __future__ import annotations

from servelab.results.checks import Evidence, Saw, check, invalid, not_applicable, ok, suspect
from servelab.results.physical_limit import PhysicalLimit

MEASURED_SLACK = 2.0
"""Measured rates are no law: a kernel on a busy machine is slow. Twice as fast as they allow is more than noise."""
MOST_NOISE_PERCENT = 30.0
"""Rates with more noise were measured on a busy machine, and may be far too low."""


def judge(limit: PhysicalLimit) -> Saw:
    """What the check finds, for measured runs and for logs."""
    if limit.share is None or limit.highest_share is None or limit.certain_share is None:
        return not_applicable(limit.note)
    text = f"{100 * limit.highest_share:.2g} % of what the devices can do: {limit.note}"
    if limit.is_measured and limit.noise_percent > MOST_NOISE_PERCENT:
        return not_applicable(f"{text}: too much noise to judge by")
    if limit.is_measured:
        return suspect(text) if limit.certain_share > MEASURED_SLACK else ok(text)
    if limit.certain_share > 1:
        return invalid(text)
    return suspect(text) if limit.highest_share > 1 else ok(text)


@check(
    "above_physical_limit",
    looks_at="The least time in which the devices can compute a round's requests and read what they need, compared "
    "with the time they took; of a log, also its printed rates ([metrics.md](metrics.md#the-physical-limit)).",
    rule="the round was faster. `invalid` by published rates of the devices, if that holds even where all tokens of a "
    "pass use the same experts, else `suspect`. By measured rates of a CPU: `suspect` if it was more than twice as "
    "fast, and the rates have at most 30 % noise.",
    why="Nothing can be served faster. The duration or the tokens are wrong, prompts came from a cache that nobody "
    "counted, or another model or device was measured.",
    fails_as=("suspect", "invalid"),
    action="Compare duration and tokens with the client's own output; check model, device and number of accelerators.",
)
def _above_physical_limit(evidence: Evidence) -> Saw:
    return judge(evidence.limit)
