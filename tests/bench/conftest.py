"""Clients to measure: ours, plain ones in this environment, and others in theirs, which are made if missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import PLAIN, ROOT

from servelab.core.identity import lock_sha256
from servelab.engines.runtimes import read_environment
from servelab.measure.clients import CLIENTS

OTHERS = ("vllm-bench", "guidellm")


@pytest.fixture(scope="session")
def plain_clients() -> dict[str, Path]:
    """Clients that need nothing but this environment, and their interpreter."""
    return dict.fromkeys(("servelab", *PLAIN), Path(sys.executable))


@pytest.fixture(scope="session")
def other_clients() -> dict[str, Path]:
    """Clients of others and the interpreters of their environments."""
    return {name: _python(name) for name in OTHERS}


@pytest.fixture(scope="session")
def clients(plain_clients: dict[str, Path], other_clients: dict[str, Path]) -> dict[str, Path]:
    """All clients and their interpreters."""
    return plain_clients | other_clients


def _python(name: str) -> Path:
    lock = CLIENTS.get(name).lock
    assert lock is not None
    path = ROOT / f"results/envs/{name}-{lock_sha256(ROOT / lock)[:12]}/environment.json"
    if not path.exists():
        files = {"input": {"lock": lock}, "output": {"environment": str(path)}, "wildcards": {"tool": name}}
        command = [sys.executable, "scripts/build_environment.py", f"files={json.dumps(files)}"]
        subprocess.run(command, cwd=ROOT, check=True)
    return read_environment(path).python
