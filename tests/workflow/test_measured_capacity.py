"""Capacity on a real llama.cpp: one load after the other is tried, and the run says which holds.

A server that keeps no prompts tries all of them on one start; one that keeps them is started for each.
"""

import pandas as pd
import pytest
import yaml
from workspace import WORKLOADS, Workspace, tiny_study

TABLE = "results/studies/tiny/stages/sequences/table.parquet"
SHORT = {
    "title": "Short",
    "kind": "random",
    "parameters": {"input_tokens": 16, "output_tokens": 8, "num_requests": 10, "seed": 1},
}


def capacity_study(**load):
    """A configuration that keeps no prompts and one that does; nothing passes the margin, so there is no proof."""
    study = tiny_study()
    study["engines"] = {"llama.cpp": study["engines"]["llama.cpp"]}
    study["baseline"] |= {"options": {"threads": 1, "prefix_caching": False}, "arguments": {"--cache-ram": 0}}
    study["stages"] = [{"name": "sequences", "candidates": [{"options": {"prefix_caching": True}}]}]
    study["search"] |= {"recheck": False, "incumbent_starts": 1}
    study["workloads"] = [{"name": "short", "load": {"capacity": load}}]
    study["objective"] |= {"metric": "capacity_per_s", "on": "short"}
    return study


@pytest.mark.slow
def test_capacity_of_a_real_server(tmp_path):
    workspace = Workspace.create(tmp_path / "project")
    workspace.write("config/workloads.yaml", yaml.safe_dump({**WORKLOADS, "short": SHORT}, sort_keys=False))
    limits = {"ttft_ms": {"p90": 700}}
    workspace.write_study(capacity_study(of="request_rate", lowest=1, highest=400, slos=limits, within_percent=50))
    workspace.snakemake(TABLE, "results/studies/tiny/report.md")
    table = pd.read_parquet(workspace.folder / TABLE)
    assert list(table["outcome"]) == ["ok", "ok"]
    assert (table["objective_value"] > 0).all() and (table["starts"] == 1).all()
    starts = {}
    for row in table.to_dict("records"):
        folder = f"results/runs/{row['run_id']}"
        status = workspace.json(f"{folder}/status.json")
        steps = pd.read_parquet(workspace.folder / folder / "steps.parquet")
        assert len(set(steps["round"])) == len(status["steps"]) > 1
        starts[row["candidate"]] = (status["server_starts"], len(status["steps"]))
        holds = [step["load"] for step in status["steps"] if step["missed"] is None]
        missed = [step["load"] for step in status["steps"] if step["missed"] is not None]
        assert holds and missed
        assert row["ttft_ms_p99"] > 0 and row["capacity_note"].startswith("search-0: at ")
    (kept_nothing, _), (kept_prompts, steps) = starts.pop("baseline"), *starts.values()
    assert kept_nothing == 1 and kept_prompts == steps
