"""Process doubles of releases that this machine cannot run: their parts, and an environment that serves them.

A double is started as its engine is: by the engine's own command, from an environment of the runtime `host` whose
program is a script that hands the command line to `double/serve.py`.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import yaml

from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.runtimes import RUNTIMES

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
FLAGS = HERE.parents[1] / "scripts/servelab/engines/flags"
_PLAYED = yaml.safe_load((HERE / "double/releases.yaml").read_text())
DEFAULTS: dict[str, Any] = _PLAYED["defaults"]
RELEASES: dict[str, dict[str, Any]] = _PLAYED["releases"]
NEWEST = list({played["engine"]: release for release, played in reversed(RELEASES.items())}.values())
"""One release of each engine: the first in the file."""
STALLS = {"DOUBLE_STARTS_FOR_S": "600"}
"""Environment variables with which a double does not become ready."""


def part(release: str) -> dict[str, Any]:
    """What `serve.py` plays: the release's behaviour, its flags, and the first of each kind of its logged lines."""
    played = dict(RELEASES[release])
    logged = yaml.safe_load((DATA / f"engine_logs/{played['engine']}.yaml").read_text())
    kinds = {"ready": logged["ready"], **logged["failures"]}
    flags = FLAGS / f"{played.pop('flags', '')}.txt"
    return {
        **played,
        "lines": {kind: logs[0]["lines"] for kind, logs in kinds.items()},
        "flags": flags.read_text().split() if flags.is_file() else [],
        "ready_path": logged["ready_path"],
    }


def environment(release: str, folder: Path) -> Path:
    """`environment.json` of a double, made in `folder` by the runtime `host`."""
    engine: Engine = ENGINES.get(RELEASES[release]["engine"])
    RUNTIMES.get("host").build(engine, lock(release, folder), folder / "environment")
    return folder / "environment/environment.json"


def lock(release: str, folder: Path, script: Path = HERE / "double/serve.py", **more: Any) -> Path:
    """The description for runtime `host` of a program that runs the script with the release's part and `more`."""
    played = part(release) | more
    (folder / "part.json").write_text(json.dumps(played))
    program = folder / "mindie-service/bin/program"  # some look for their version above it
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(script), str(folder / "part.json")])} "$@"\n')
    program.chmod(0o755)
    (folder / "version.info").write_text(f"Ascend-mindie : MindIE {played['version']}.B000\n")
    name = f"double ({script.stem}) of {release}"
    description = {"name": name, "version": played["version"], "command": str(program)}
    host = folder / f"{release}.host.yaml"
    host.write_text(yaml.safe_dump(description))
    return host


def model(folder: Path) -> Path:
    """`model.json` of a model without weights, which a double only looks for."""
    (folder / "model").mkdir(parents=True)
    (folder / "model/config.json").write_text(json.dumps({"max_position_embeddings": 8192}))
    source = {"kind": "path", "path": str(folder / "model"), "revision": "1"}
    content = {
        "path": "model",
        "format": "safetensors",
        "tokenizer": "model/tokenizer.json",
        "source": source,
        "conversion": None,
    }
    (folder / "model.json").write_text(json.dumps(content))
    return folder / "model.json"
