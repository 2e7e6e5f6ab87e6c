"""Clients to measure: ours, and others in environments that are made if missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT

from servelab.core.identity import lock_sha256
from servelab.engines.runtimes import read_environment
from servelab.measure.clients import CLIENTS

OTHERS = ("vllm-bench", "guidellm")


@pytest.fixture(scope="session")
def clients() -> dict[str, Path]:
    """Clients and the interpreters of their environments."""
    return {"servelab": Path(sys.executable)} | {name: _python(name) for name in OTHERS}


def _python(name: str) -> Path:
    lock = CLIENTS.get(name).lock
    assert lock is not None
    path = ROOT / f"results/envs/{name}-{lock_sha256(ROOT / lock)[:12]}/environment.json"
    if not path.exists():
        files = {"input": {"lock": lock}, "output": {"environment": str(path)}, "wildcards": {"tool": name}}
        command = [sys.executable, "scripts/environments.py", "build_environment", f"files={json.dumps(files)}"]
        subprocess.run(command, cwd=ROOT, check=True)
    return read_environment(path).python
