"""Was it one server, with empty caches, from a round's first request to its last?"""

from __future__ import annotations

import pandas as pd

from servelab.validity import Evidence, Saw, check, invalid, not_applicable, ok, suspect

_SAME_START_S = 1.0
_HITS = 0.1


@check(
    "server_restarted",
    looks_at="The start time of the server's process during each round's load, and how often the server was started.",
    rule="the process's start time moved within a round, or there were more starts than rounds.",
    why="A server that died and came back lost its queue and its caches, and part of the round measured its start.",
    fails_as=("invalid",),
    action="Read the server's log around the restart.",
)
def _server_restarted(evidence: Evidence) -> Saw:
    starts, rounds = evidence.status.get("server_starts"), evidence.records["round"].nunique()
    born = evidence.samples("process_start_unix_s").groupby("round")["value"]
    if not rounds or (starts is None and not len(born)):
        return not_applicable("neither the server's starts nor its process's start time are known")
    moved = [number for number, spread in (born.max() - born.min()).items() if spread > _SAME_START_S]
    if moved:
        return invalid(f"the server was restarted within round {moved[0]}")
    if starts is not None and starts > rounds:
        return invalid(f"{starts} starts of the server for {rounds} rounds")
    return ok(f"no restart within a round{'' if starts is None else f'; {starts} starts for {rounds} rounds'}")


@check(
    "cache_hits",
    looks_at="Prompt tokens taken from a prefix cache, by the server's metrics and by its `usage`, beyond what a chat "
    "template gives to every prompt.",
    rule="invalid where the share of a round is more than 10 points above that of another; suspect where it is above "
    "10 % in any round.",
    why="Rounds start with empty caches and the prompts of a load are different, so that hits beyond the template are "
    "of prompts that share text, the same in each round. More in one round than in another is what an earlier one "
    "left.",
    fails_as=("suspect", "invalid"),
    action="See that the engine's caches are emptied between rounds (`restart_server` does it for sure); where prompts "
    "share text on purpose, the figure is one with prefix caching.",
)
def _cache_hits(evidence: Evidence) -> Saw:
    shares = _hit_shares(evidence)
    if not shares:
        return not_applicable("the server does not tell its cache hits")
    low, high = min(shares.values()), max(shares.values())
    text = f"{100 * high:.0f} % of the prompts' tokens came from a cache, the chat template left out"
    if high - low > _HITS:
        return invalid(f"{text}, in another round {100 * low:.0f} %")
    return suspect(text) if high > _HITS else ok(text)


def _hit_shares(evidence: Evidence) -> dict[int, float]:
    """Share of each round's prompt tokens that came from a cache, beyond the template; the higher of both sources."""
    done = evidence.successes.dropna(subset=["input_tokens", "input_tokens_asked"])
    tokens = done.groupby("round")[["input_tokens", "input_tokens_asked", "cached_tokens"]].sum(min_count=1)
    shares: dict[int, float] = {}
    for number, row in tokens.iterrows():
        hits = _counter(evidence, int(str(number)), "prefix_cache_hit_tokens_total")
        queries = _counter(evidence, int(str(number)), "prefix_cache_query_tokens_total")
        told = [hits / queries] if hits is not None and queries else []
        if pd.notna(row["cached_tokens"]) and row["input_tokens"]:
            told.append(row["cached_tokens"] / row["input_tokens"])
        if told:
            template = max(0.0, 1 - row["input_tokens_asked"] / row["input_tokens"])
            shares[int(str(number))] = max(0.0, max(told) - template)
    return shares


def _counter(evidence: Evidence, number: int, metric: str) -> float | None:
    """What a counter of the server rose by during a round's load; None where it was not read twice, or fell."""
    table = evidence.telemetry
    found = table[(table["round"] == number) & (table["metric"] == metric)].sort_values("time_s")
    if found.empty:
        return None
    during = found[found["time_s"] > 0]["value"]
    before = found[found["time_s"] <= 0]["value"].tail(1)
    values = pd.concat([before, during])
    return float(values.iloc[-1] - values.iloc[0]) if len(values) > 1 and values.is_monotonic_increasing else None
