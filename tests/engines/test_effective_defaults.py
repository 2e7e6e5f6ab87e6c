"""The adapter's table of effective defaults against the installed release's own code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from engines.conftest import install

from servelab.engines.accelerator_boards import board_of
from servelab.tune.typed_command import read_command

BOARDS = {"NVIDIA H100 80GB HBM3": False, "NVIDIA A100-SXM4-80GB": False, "B200": False, "L40S": False, "cpu": True}
COMMANDS = (
    "",
    "--performance-mode throughput",
    "--max-num-seqs 2 --max-model-len 512",
    "--max-num-batched-tokens 64",
    "--no-enable-chunked-prefill --max-model-len 32768",
    "--tensor-parallel-size 2 --enforce-eager",
    "--gpu-memory-utilization 0.5 --kv-cache-dtype fp8 --stream-interval 4",
)


@pytest.mark.slow
def test_vllm_itself_resolves_flags_as_the_table_says():
    installed = install("vllm")
    boards = {name: board_of(name, is_cpu=is_cpu) for name, is_cpu in BOARDS.items()}
    cases = [(board, flags) for board in boards.values() for flags in COMMANDS]
    asked = json.dumps([[each.memory_gib, each.name, each.is_cpu, 40960, flags.split()] for each, flags in cases])
    program = Path(__file__).with_name("ask_vllm_defaults.py")
    command = [str(installed.environment.python), str(program), asked]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    for (board, flags), own in zip(cases, map(installed.engine.resolved, json.loads(said)), strict=True):
        read = read_command([f"vllm serve a/b {flags}"])
        ours = installed.engine.effective(installed.environment.version, board, read.options, read.arguments)
        assert {name: ours.get(name) for name in own} == own, f"{board.name}: {flags}"
