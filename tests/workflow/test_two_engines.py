"""The study of two engines on small loads: both are measured on the same model, and the faster one is chosen."""

import pandas as pd
import pytest
from workspace import ROOT, WORKLOADS, Workspace, yaml


@pytest.mark.slow
def test_both_engines_are_measured_and_the_faster_is_chosen(tmp_path):
    workspace = Workspace.create(tmp_path / "engines")
    study = yaml.safe_load((ROOT / "config/studies/cpu-engines.yaml").read_text().replace("on: cpu-", "'on': cpu-"))
    study |= {"study": "tiny", "stages": study["stages"][:2], "workloads": ["tiny", "tiny-sharegpt"]}
    study["objective"] |= {"on": "tiny-sharegpt"}
    study["protocol"]["rounds"] = 2
    workspace.write_study(study)
    workspace.write("config/workloads.yaml", yaml.safe_dump(WORKLOADS, sort_keys=False))
    workspace.snakemake()

    folder = workspace.folder / "results/studies/tiny"
    table = pd.read_parquet(folder / "stages/engine/table.parquet").set_index("engine")
    assert set(table.index) == {"llama.cpp", "vllm"}
    assert set(table["outcome"]) == {"ok"}, table["message"].to_list()
    llama, vllm = (
        pd.read_parquet(workspace.folder / "results/runs" / table.loc[engine, "run_id"] / "requests.parquet")
        for engine in ("llama.cpp", "vllm")
    )
    same = ["round", "request_index", "input_tokens", "output_tokens"]
    pd.testing.assert_frame_equal(
        llama[same].sort_values(same[:2], ignore_index=True), vllm[same].sort_values(same[:2], ignore_index=True)
    )
    decision = workspace.json("results/studies/tiny/stages/engine/decision.json")
    verdict = {entry["candidate"]: entry for entry in decision["candidates"]}["vllm, kv-cache-memory-bytes=1073741824"]
    wins = verdict["change_ci95_low_percent"] is not None and verdict["change_ci95_low_percent"] > 0
    assert decision["changed"] == (wins and verdict["change_percent"] > 3)
    threads = workspace.json("results/studies/tiny/stages/threads/plan.json")
    assert threads["applies"] == decision["changed"]
    assert workspace.measured_by() == set()
