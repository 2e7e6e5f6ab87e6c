"""Throughput against latency or against each user's speed: what no other measured configuration beats in both."""

from __future__ import annotations

import pandas as pd

THROUGHPUT = "tokens_per_s_per_accelerator"
LATENCIES = {"ttft_ms_mean": "Mean TTFT (ms)", "tpot_ms_mean": "Mean TPOT (ms)"}
"""Column of the stage tables → its title."""


def measured(search: pd.DataFrame) -> pd.DataFrame:
    """Each successful run of the search once, with `THROUGHPUT` and `role`: `Baseline`, `Winner` or empty.

    `search` has rows of the stage tables with `is_winner`, in order of the stages. The winner is the last stage's.
    """
    ok = search[(search["outcome"] == "ok") & search["total_tokens_per_s"].notna()]
    ok = ok[ok[list(LATENCIES)].notna().any(axis=1)]
    if ok.empty:
        return ok.assign(role="", **{THROUGHPUT: 0.0})
    baseline = search.loc[search["is_incumbent"], "run_id"].head(1)
    winner = search.loc[search["is_winner"], "run_id"].tail(1)
    runs = ok.drop_duplicates("run_id")
    roles = pd.Series("", index=runs.index)
    roles[runs["run_id"].isin(winner)] = "Winner"
    roles[runs["run_id"].isin(baseline)] = "Baseline"
    return runs.assign(role=roles, **{THROUGHPUT: runs["total_tokens_per_s"] / runs["accelerators"]})


def on_front(runs: pd.DataFrame, latency: str) -> pd.Series:
    """Whether each run is on the Pareto front: valid, and no run is at least as good in both and better in one.

    A run with too many failed requests is not on it: its latency is that of the requests that it answered. `runs`
    has `THROUGHPUT`, `validity`, `too_many_failed` and the column `latency`, without nulls.
    """
    valid = runs[(runs["validity"] != "invalid") & ~runs["too_many_failed"]]
    ordered = valid.sort_values([latency, THROUGHPUT], ascending=[True, False], kind="stable")
    best_before = ordered[THROUGHPUT].cummax().shift(fill_value=float("-inf"))
    front = ordered.index[ordered[THROUGHPUT] > best_before]
    return pd.Series(runs.index.isin(front), index=runs.index)


def reachable(points: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """The front over the points' `x` where both are better when higher: the highest `y` with at least that much `x`.

    A row for each value of `x`, in order: `best` of the values of `y`, `low` and `high` of the ends of their intervals
    in columns of these names; a point without an interval has its value for both.
    """
    ends = points[[x]].assign(
        best=points[y], low=points["low"].fillna(points[y]), high=points["high"].fillna(points[y])
    )
    return ends.sort_values(x, ascending=False).set_index(x).cummax().groupby(level=0).max().reset_index()
