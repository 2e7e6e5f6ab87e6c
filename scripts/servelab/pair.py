"""Measures two runs again side by side: A/B/B/A rounds under one lease.

Runs of a stage lie minutes or hours apart, and a machine drifts (heat, neighbours, clocks). In A/B/B/A order both sides
see the same drift, and what changes linearly over a cycle cancels.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servelab.deciding_pair import SIDES, PairSpec, pair_id
from servelab.errors import ConfigError
from servelab.files import write_json
from servelab.lease import lease
from servelab.measure import write_run
from servelab.run_folder import make_once
from servelab.session import RunInputs, Session, say

_CYCLE = "abba"


def measure_pair(pair: PairSpec, inputs: dict[str, RunInputs], output: Path) -> dict[str, Any]:
    """Measures a pair into the folder `output`: the files of a run for each side, in `a/` and `b/`; returns its status.

    `inputs` has the keys of `SIDES`. The folder appears complete or not at all, and a complete one is kept. A side that
    fails ends the pair. Raises what `measure` raises.
    """
    if output.name != pair_id(pair):
        raise ConfigError(f"{output}: this pair is {pair_id(pair)}; results go under their own name")
    for side in SIDES:
        inputs[side].check()

    def work_in(folder: Path) -> None:
        started_at = datetime.now(UTC)
        for side in SIDES:
            (folder / side).mkdir()
        outcomes = _interleave(pair, inputs, folder)
        statuses = {side: write_run(folder / side, inputs[side], outcomes[side], started_at) for side in SIDES}
        failed = [side for side in SIDES if statuses[side]["outcome"] != "ok"]
        status = {
            "pair_id": output.name,
            "order": _CYCLE * pair.cycles,
            "outcome": "failed" if failed else "ok",
            "failed_side": failed[0] if failed else None,
            "message": statuses[failed[0]]["message"] if failed else None,
            "accelerator_s": sum(outcome.accelerator_s for outcome in outcomes.values()),
        }
        write_json(folder / "pair.json", pair.model_dump(mode="json"))
        write_json(folder / "status.json", status)

    return make_once(output, work_in)


def _interleave(pair: PairSpec, inputs: dict[str, RunInputs], work: Path) -> dict[str, Any]:
    count = max(pair.a.hardware.count, pair.b.hardware.count)
    with lease(pair.a.hardware.device, count) as leased:
        sessions = {
            side: Session(inputs[side], leased.part(inputs[side].spec.hardware.count), work / side) for side in SIDES
        }
        held_s = dict.fromkeys(SIDES, 0.0)
        serving = ""
        try:
            for side in _CYCLE * pair.cycles:
                began = time.monotonic()
                if serving and serving != side:
                    sessions[serving].stop()
                serving = side
                say(f"side {side}: {inputs[side].spec.model.id} with {inputs[side].spec.engine.name} on {leased.names}")
                sessions[side].round()
                held_s[side] += (time.monotonic() - began) * count
                if sessions[side].outcome.failure:
                    break
        finally:
            for session in sessions.values():
                session.stop()
        outcomes = {side: sessions[side].finish() for side in SIDES}
        for side in SIDES:
            outcomes[side].accelerator_s = held_s[side]
    return outcomes
