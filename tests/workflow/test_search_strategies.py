"""A study searched stage by stage with its re-check, with real runs."""

import pandas as pd
import pytest
from workspace import Workspace, tiny_study, yaml

SLOW = {"max_num_seqs": 4, "max_num_batched_tokens": 4, "context_length": 2048, "threads": 1}
"""Prompts are read four tokens at a time and four at once, so that no first token comes before all of them are read:
reading more at a time helps, and one after the other brings the mean first token sooner, on a busy machine too."""
PROMPTS = {
    "title": "Prompts to read",
    "kind": "random",
    "parameters": {"input_tokens": 96, "output_tokens": 2, "num_requests": 8, "seed": 1},
}
STUDY = "results/studies/tiny"


def stage(workspace, name, file):
    return workspace.json(f"{STUDY}/stages/{name}/{file}.json")


@pytest.mark.slow
def test_staged_with_its_recheck(tmp_path):
    workspace = Workspace.create(tmp_path / "search")
    study = tiny_study()
    study["objective"] |= {"metric": "ttft_ms", "on": "prompts", "margin_percent": 0}
    study["objective"] |= {"constraints": {"e2el_ms": {"mean": 600_000, "median": 600_000}}}  # 8 requests: no p90
    study["protocol"]["rounds"] = 1  # no interval: whatever is faster takes over
    study["protocol"]["round_timeout_s"] = 300
    study["baseline"] |= {"options": SLOW}
    study["stages"] = [
        {"name": "batch", "candidates": [{"label": "512", "options": {"max_num_batched_tokens": 512}}]},
        {"name": "sequences", "candidates": [{"label": "one", "options": {"max_num_seqs": 1}}]},
    ]
    study["workloads"] = ["prompts"]
    study["search"] = {"strategy": "staged", "stop_when": {"accelerator_hours": 10}}
    workspace.write_study(study)
    workspace.write("config/workloads.yaml", yaml.safe_dump({"prompts": PROMPTS}, sort_keys=False))
    workspace.snakemake()

    changed = [stage(workspace, name, "decision")["changed"] for name in ("batch", "sequences")]
    recheck = stage(workspace, "recheck", "plan")
    assert recheck["applies"] == all(changed)
    names = [candidate["candidate"] for candidate in recheck["candidates"]]
    assert names[1:] == (["without batch: 512", "without sequences: one"] if all(changed) else [])
    assert len(workspace.runs()) == 3 + all(changed)  # the last choice turned back was measured before
    decision = stage(workspace, "recheck", "decision")
    assert [verdict["candidate"] for verdict in decision["candidates"]] == names
    winner = workspace.json(f"{STUDY}/recommended.json")["configuration"]
    chosen = next(each for each in recheck["candidates"] if each["candidate"] == decision["winner"]["candidate"])
    assert winner == chosen["configuration"]
    table = pd.read_parquet(workspace.folder / STUDY / "stages/batch/table.parquet")
    assert table["constraints_missed"].isna().all()
    assert workspace.measured_by() == set()
