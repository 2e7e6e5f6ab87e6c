"""Did one server, with empty caches, run for the whole round?"""

from __future__ import annotations

from servelab.assets.workloads import WORKLOADS
from servelab.metrics.definitions.cache import cached_share
from servelab.metrics.tables.record_array import by_round, known, maximum, minimum
from servelab.results.checks import Evidence, Saw, check, invalid, not_applicable, ok, suspect
from servelab.results.physical_limit import PhysicalLimit

_SAME_START_S = 1.0
_HITS = 0.1


@check(
    "server_restarted",
    looks_at="The start time of the server's process during each round's load, and how often the server was started.",
    rule="the process's start time changed within a round, or there were more starts than rounds.",
    why="A server that died and restarted lost its queue and its caches, and part of the round measured its start.",
    fails_as=("invalid",),
    action="Read the server's log around the restart.",
)
def _server_restarted(evidence: Evidence) -> Saw:
    starts, rounds = evidence.server_starts, evidence.loads_sent or len(by_round(evidence.records))
    born = {n: samples["value"] for n, samples in by_round(evidence.samples("process_start_unix_s")).items()}
    if not rounds or (starts is None and not born):
        return not_applicable("neither the server's starts nor its process's start time are known")
    moved = [number for number, times in born.items() if maximum(times) - minimum(times) > _SAME_START_S]
    if moved:
        return invalid(f"the server was restarted within round {moved[0]}")
    if starts is not None and starts > rounds:
        return invalid(f"{starts} starts of the server for {rounds} rounds")
    return ok(f"no restart within a round{'' if starts is None else f'; {starts} starts for {rounds} rounds'}")


@check(
    "cache_hits",
    looks_at="Prompt tokens from the prefix cache, by the server's metrics and by its `usage`, without those of the "
    "chat template that every prompt shares.",
    rule="invalid if the share of one round is more than 10 points above that of another; suspect if it is more than "
    "10 points above what the workload's prompts share: nothing, but for `shared_prefix`; those of `prompts` and "
    "`trace` may share any text.",
    why="Caches are emptied before each round and prompts differ, so the hit rate should be the same in every round. "
    "A higher rate in one round means that an earlier round was not flushed.",
    fails_as=("suspect", "invalid"),
    action="Make sure that the engine's caches are emptied between rounds.",
)
def _cache_hits(evidence: Evidence) -> Saw:
    shares = _hit_shares(evidence)
    if not shares:
        return not_applicable("the server does not report its cache hits")
    low, high = min(shares.values()), max(shares.values())
    text = f"{100 * high:.0f} % of the prompts' tokens came from a cache, without the chat template"
    if high - low > _HITS:
        return invalid(f"{text}, in another round {100 * low:.0f} %")
    workload = evidence.spec.workload
    shared = WORKLOADS.get(workload.kind).shared_input(workload.parameters)
    if shared is None:
        return ok(f"{text}; its prompts may share text")
    if high > shared + _HITS:
        return suspect(text if not shared else f"{text}, where its prompts share {100 * shared:.0f} %")
    return ok(text if not shared else f"{text}; its prompts share {100 * shared:.0f} %")


def _hit_shares(evidence: Evidence) -> dict[int, float]:
    """Share of each round's prompt tokens that came from a cache, without the template."""
    shares: dict[int, float] = {}
    for number, done in by_round(known(evidence.successes, "input_tokens", "input_tokens_asked")).items():
        share = cached_share(done, evidence.telemetry[evidence.telemetry["round"] == number])
        if share is not None:
            tokens, asked = float(done["input_tokens"].sum()), float(done["input_tokens_asked"].sum())
            shares[number] = max(0.0, share - (max(0.0, 1 - asked / tokens) if tokens else 0.0))
    return shares


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
