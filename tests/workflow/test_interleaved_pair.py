"""A stage whose leader is measured again beside the incumbent before it takes over."""

import pytest
from workspace import PREFILL_ONLY, SLOW_PREFILL, Workspace, tiny_study, yaml


@pytest.mark.slow
@pytest.mark.long
def test_the_pair_decides_and_is_measured_once(tmp_path):
    workspace = Workspace.create(tmp_path / "pair")
    study = tiny_study()
    study["objective"] |= {"on": "prefill", "margin_percent": 0, "interleaved_cycles": 1}
    study["baseline"] |= {"options": SLOW_PREFILL}
    study["stages"] = [{"name": "batch", "candidates": [{"label": "fast", "options": {"max_num_batched_tokens": 512}}]}]
    study["workloads"] = ["prefill"]
    workspace.write_study(study)
    workspace.write("config/workloads.yaml", yaml.safe_dump({"prefill": PREFILL_ONLY}, sort_keys=False))
    workspace.snakemake()

    planned = workspace.json("results/studies/tiny/stages/batch/pair.json")
    assert planned["candidate"] == "fast"
    decision = workspace.json("results/studies/tiny/stages/batch/decision.json")
    verdict = decision["candidates"][1]
    assert (verdict["candidate"], verdict["pair_id"]) == ("fast", planned["pair_id"])
    assert verdict["change_percent"] > 0
    low = verdict["change_ci95_low_percent"]
    assert decision["changed"] == (low is not None and low > 0)
    folder = workspace.folder / "results/pairs" / planned["pair_id"]
    assert workspace.json(f"{folder}/status.json")["order"] == "abba"
    measured_at = (folder / "status.json").stat().st_mtime_ns

    workspace.edit("config/studies/tiny.yaml", "label: fast", "label: faster")
    assert workspace.measured_by() == set()
    assert (folder / "status.json").stat().st_mtime_ns == measured_at
    report = (workspace.folder / "results/studies/tiny/report.md").read_text()
    assert "faster" in report and f"measured again beside the incumbent, pair {planned['pair_id']}" in report
