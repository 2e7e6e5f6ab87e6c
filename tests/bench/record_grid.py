"""Keeps runs of studies as recorded ones, small enough for the tests: `runs.csv`, `rounds.csv`, `machine.json`.

    python tests/bench/record_grid.py results/studies/cpu-grid [results/studies/other …] --output tests/data/grid

A run is taken from the first stage of the first study that has it. Everything is as the study's own files have it, but
for the load's length of each round, which is from its records.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from servelab.core.files import replacing, write_json

STATUS = ("startup_s", "server_starts", "load_s", "accelerator_s", "requests", "requests_failed")
RUN = ("run_id", "load", "model", "options", "arguments", "rounds", *STATUS, "validity", "validity_note", "started_at")
ROUND = ("run_id", "round", "total_tokens_per_s", "load_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="+", help="results/studies/<study>, measured")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    runs: dict[str, dict[str, Any]] = {}
    rounds: list[dict[str, Any]] = []
    for study in arguments.studies:
        for stage in sorted((study / "stages").iterdir()):
            checked = {row["run_id"]: row for row in pq.read_table(stage / "table.parquet").to_pylist()}
            plan = json.loads((stage / "plan.json").read_bytes())
            for candidate in plan["candidates"]:
                for run in candidate["runs"]:
                    if run["run_id"] not in runs:
                        folder = study.parents[1] / "runs" / run["run_id"]
                        runs[run["run_id"]] = _run(folder, run, candidate, checked[run["run_id"]])
                        rounds += _rounds(folder)
    _write_csv(arguments.output / "runs.csv", RUN, list(runs.values()))
    _write_csv(arguments.output / "rounds.csv", ROUND, rounds)
    first = study.parents[1] / "runs" / next(iter(runs))
    write_json(arguments.output / "machine.json", _machine(first, sorted(run["started_at"] for run in runs.values())))


def _run(folder: Path, run: dict[str, Any], candidate: dict[str, Any], checked: dict[str, Any]) -> dict[str, Any]:
    status = json.loads((folder / "status.json").read_bytes())
    configuration = candidate["configuration"]
    return {
        "run_id": run["run_id"],
        "load": run["workload"],
        "model": configuration["model"],
        "options": json.dumps(configuration["options"], sort_keys=True),
        "arguments": json.dumps(configuration["arguments"], sort_keys=True),
        "rounds": status["rounds"],
        **{name: _short(status[name]) for name in STATUS},
        "validity": checked["validity"],
        "validity_note": checked["validity_note"],
        "started_at": status["started_at"],
    }


def _rounds(folder: Path) -> list[dict[str, Any]]:
    """The objective of each round, and how long its load took."""
    status = json.loads((folder / "status.json").read_bytes())
    records = pq.read_table(folder / "requests.parquet", columns=["round", "end_s"])
    ends = records.group_by("round").aggregate([("end_s", "max")]).sort_by("round")["end_s_max"].to_pylist()
    return [
        {
            "run_id": status["run_id"],
            "round": number,
            "total_tokens_per_s": _short(value),
            "load_s": _short(end),
        }
        for number, (value, end) in enumerate(zip(status["objective_rounds"], ends, strict=True))
    ]


def _machine(folder: Path, started: list[str]) -> dict[str, Any]:
    """What all runs share: the machine, the engine, the load client, the load, and when they were measured."""
    manifest, spec = (json.loads((folder / f"{name}.json").read_bytes()) for name in ("manifest", "spec"))
    return {
        "measured_from": started[0],
        "measured_until": started[-1],
        "machine": manifest["machine"],
        "engine": spec["engine"],
        "client": spec["client"],
        "workload": spec["workload"],
        "protocol": spec["protocol"],
    }


def _short(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _write_csv(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
