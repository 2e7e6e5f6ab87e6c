"""A small study written to a folder, as the workflow's rules write it: what charts and reports are tested on.

A candidate has two server starts; baseline and winner have three pairs of them in the proof. It holds a kept incumbent,
winners, a failed candidate, a stage that does not apply, a candidate of a single start and round
(no interval), a winner on 4 of 8 accelerators, an invalid candidate, and suspect runs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import made_run
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.run_spec import RunSpec
from servelab.measure.run_files import GitState, ManifestDevice
from servelab.metrics.tables import schemas
from servelab.search.recommended import Improvement

STUDY = "npu-qwen"
OBJECTIVE = "total_tokens_per_s"
WORKLOADS = {
    "sharegpt": "ShareGPT, 1,000 prompts",
    "short-128x4": "Short: 128 in, 4 out",
    "very-long-32000x100": "Very long: 32,000 in, 100 out",
}
OUT_OF_MEMORY = "torch.OutOfMemoryError: tried to allocate 14.5 GiB | 3.2 GiB free <unit 0>"

DISTURBED = "disturbed round: round 2: total_tokens_per_s 1207, the others' median is 2281"
NO_GAPS = "zero itl: 3,000 of 3,000 answers of several tokens have no gap between them"
SUSPECT = {("very-long-32000x100", "winner"), ("short-128x4", "baseline")}
"""Runs of the comparison that are suspect, by workload and side."""

CONFIGURATION = {"model": "base", "options": {}, "arguments": {}, "environment_variables": {}}
MACHINE = {"cpu": "Kunpeng 920", "cpus": 192, "memory_bytes": 1024 * 2**30, "kernel": "5.10.0"}
DEVICES = [
    ManifestDevice(index=str(index), name="Ascend 910B", driver="24.1", memory_bytes=64 * 2**30) for index in range(8)
]
GIT = GitState(commit="0123456789abcdef0123456789abcdef01234567", dirty=False)

SCATTER = {1: [1.0], 2: [1 - 0.015 / 12.7062, 1 + 0.015 / 12.7062]}
"""Values of the starts of a candidate, as shares of their mean, with Student's interval of ± 1.5 %."""
SCATTER[3] = [1 - 0.015 * 3**0.5 / 4.30265, 1.0, 1 + 0.015 * 3**0.5 / 4.30265]


def run_id(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:20]


def table_row(stage: str, position: int, candidate: str, value: float | None, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(schemas.STAGE_TABLE.names)
    row |= {
        "study": STUDY,
        "stage": stage,
        "position": position,
        "candidate": candidate,
        "workload": "sharegpt",
        "is_incumbent": position == 0,
        "run_id": run_id(f"{stage} {candidate} {changes.get('workload')}"),
        **{name: [] for name in ("run_ids", "start_labels", "start_values", "start_delays_percent", "start_jobs")},
        "starts": 0,
        "engine": "vllm",
        "engine_version": "0.32.0",
        "model_variant": "base",
        "changes": "{}" if position == 0 else json.dumps({"arguments": {"--max-num-seqs": 64 * position}}),
        "command": f"vllm serve Qwen/Qwen3-32B --max-num-seqs {64 * position}",
        "accelerators": 8,
        "accelerators_per_node": 8,
        "outcome": "ok",
        "rounds": 3,
        "success_rate": 1.0,
        "objective": OBJECTIVE,
        "objective_per": "accelerator",
        "accelerator_s": 1843.0,
    }
    row |= changes
    starts = 1 if row["rounds"] < 2 else 3 if stage == "confirm" else 2
    if row["run_id"]:
        row["run_ids"] = [row["run_id"], *(run_id(f"{row['run_id']} {number}") for number in range(1, starts))]
    if value is not None:
        row["validity"] = row["validity"] or "ok"
        per_accelerator = value / row["accelerators"]
        row |= {
            "objective_value": per_accelerator,
            "total_tokens_per_s": value,
            "output_tokens_per_s": value * 0.47,
            "requests_per_s": value / 420,
            "ttft_ms_mean": 9e5 / value,
            "ttft_ms_p99": 2.4e6 / value,
            "tpot_ms_mean": 8.1e4 / value,
            "tpot_ms_p99": 1.3e5 / value,
            "itl_ms_mean": 7.7e4 / value,
            "e2el_ms_mean": 2.1e7 / value,
        }
        kind = "proof" if stage == "confirm" else "search"
        row |= {
            "rounds": row["rounds"] * starts,
            "starts": starts,
            "start_labels": [f"{kind}-{number}" for number in range(starts)],
            "start_values": [per_accelerator * factor for factor in SCATTER[starts]],
            "start_delays_percent": [0.0] * starts,
            "start_jobs": [run_id(f"{kind} {number}") for number in range(starts)],
        }
        if starts > 1:
            row |= {"objective_ci95_low": per_accelerator * 0.985, "objective_ci95_high": per_accelerator * 1.015}
    return row


STAGES = {
    "engine": [
        table_row("engine", 0, "baseline", 2048.0),
        table_row("engine", 1, "sglang", 2391.5, engine="sglang", engine_version="0.5.6"),
        table_row(
            "engine", 2, "a candidate whose label is much longer than any plot has room for, really", 2100.0, rounds=1
        ),
    ],
    "parallelism": [
        table_row("parallelism", 0, "sglang", 2391.5),
        table_row("parallelism", 1, "tensor_parallel_size=4", 2270.0, accelerators=4),
        table_row(
            "parallelism",
            2,
            "tensor_parallel_size=1",
            None,
            outcome="failed",
            reason="out_of_memory",
            message=OUT_OF_MEMORY,
            success_rate=None,
            rounds=0,
            accelerators=1,
        ),
        table_row(
            "parallelism",
            3,
            "pipeline_parallel_size=2",
            None,
            run_id=None,
            outcome="failed",
            reason="refused",
            message="engine sglang has no option pipeline_parallel_size",
            success_rate=None,
            rounds=0,
            accelerator_s=None,
            command="",
        ),
    ],
    "batching": [
        table_row("batching", 0, "tensor_parallel_size=4", 2270.0, accelerators=4),
        table_row(
            "batching", 1, "--max-num-seqs=512", 2281.0, accelerators=4, validity="suspect", validity_note=DISTURBED
        ),
        table_row("batching", 2, "--stream=off", 9999.0, accelerators=4, validity="invalid", validity_note=NO_GAPS),
    ],
    "speculative": [table_row("speculative", 0, "tensor_parallel_size=4", 2270.0, accelerators=4)],
    "confirm": [
        table_row(
            "confirm",
            position,
            candidate,
            value * scale,
            workload=workload,
            accelerators=count,
            **({"validity": "suspect", "validity_note": DISTURBED} if (workload, candidate) in SUSPECT else {}),
        )
        for workload, scale, gain in zip(WORKLOADS, (1.0, 6.1, 0.3), (1.108, 1.004, 2.31), strict=True)
        for position, candidate, value, count in ((0, "baseline", 2048.0, 8), (1, "winner", 2048.0 * gain, 4))
    ],
}
TITLES = {
    "engine": "Choosing the inference engine",
    "parallelism": "Parallelism",
    "batching": "Batching",
    "speculative": "Speculative decoding",
}
WINNERS = dict.fromkeys(TITLES, "tensor_parallel_size=4") | {"engine": "sglang"}


def verdict(row: dict[str, Any], incumbent: dict[str, Any], is_winner: bool) -> dict[str, Any]:
    change = low = high = None
    if row is incumbent:
        word, why = "incumbent", "the stage starts from it"
    elif row["outcome"] != "ok":
        word = "refused" if row["reason"] == "refused" else "failed"
        why = f"{row['reason']}: {row['message']}"
    elif row["validity"] == "invalid":
        word, why = "invalid", row["validity_note"]
    else:
        change = 100 * (row["objective_value"] / incumbent["objective_value"] - 1)
        low, high = (change - 1.7, change + 1.7) if row["rounds"] > 1 else (None, None)
        word, why = ("winner" if is_winner else "within noise"), f"{change:+.1f} %"
    return {
        "candidate": row["candidate"],
        "run_id": row["run_id"],
        "outcome": row["outcome"],
        "verdict": word,
        "change_percent": change,
        "change_ci95_low_percent": low,
        "change_ci95_high_percent": high,
        "why": why,
    }


def decision(stage: str) -> dict[str, Any]:
    rows = STAGES[stage]
    incumbent = rows[0]
    winner = next(row for row in rows if row["candidate"] == WINNERS[stage])
    applies = len(rows) > 1
    return {
        "study": STUDY,
        "stage": stage,
        "title": TITLES[stage],
        "applies": applies,
        "reason": f"{WINNERS[stage]}: chosen" if applies else "applies if model is draft; the incumbent's is base",
        "incumbent": {"candidate": incumbent["candidate"], "run_id": incumbent["run_id"]},
        "winner": {"candidate": winner["candidate"], "run_id": winner["run_id"]},
        "changed": winner is not incumbent,
        "objective": OBJECTIVE,
        "margin_percent": 2.0,
        "candidates": [verdict(row, incumbent, row is winner) for row in rows],
    }


def improvements() -> list[dict[str, Any]]:
    rows = []
    for workload in WORKLOADS:
        baseline, winner = (row for row in STAGES["confirm"] if row["workload"] == workload)
        for metric, basis, factor, baseline_factor in (
            (OBJECTIVE, "deployment", 1, 1),
            (OBJECTIVE, "accelerator", 1 / 4, 1 / 8),
            (OBJECTIVE, "node", 2, 1),
            ("ttft_ms_mean", "deployment", 1, 1),
        ):
            before, after = baseline[metric] * baseline_factor, winner[metric] * factor
            change = 100 * (after / before - 1)
            rows.append(
                {
                    "study": STUDY,
                    "stage": "confirm",
                    "candidate": "winner",
                    "workload": workload,
                    "metric": metric.removesuffix("_mean"),
                    "basis": basis,
                    "extrapolated": basis == "node",
                    "factor": factor,
                    "baseline_factor": baseline_factor,
                    "baseline_run_id": baseline["run_id"],
                    "run_id": winner["run_id"],
                    "baseline_validity": baseline["validity"],
                    "validity": winner["validity"],
                    "baseline_value": before,
                    "value": after,
                    "higher_is_better": metric == OBJECTIVE,
                    "evidence": "proof",
                    "starts": 3,
                    "change_percent": change,
                    "change_ci95_low_percent": change - 1.9,
                    "change_ci95_high_percent": change + 2.1,
                }
            )
    return rows


def metrics() -> list[dict[str, Any]]:
    rows = []
    for row in [row for stage in STAGES.values() for row in stage if row["outcome"] == "ok"]:
        for metric in (OBJECTIVE, "output_tokens_per_s", "requests_per_s", "ttft_ms", "tpot_ms", "e2el_ms"):
            is_latency = metric.endswith("_ms")
            value = row[f"{metric}_mean" if is_latency else metric]
            rounds = row["rounds"] // row["starts"]
            for run, start, factor in zip(row["run_ids"], row["start_labels"], SCATTER[row["starts"]], strict=True):
                rows.append(
                    dict.fromkeys(schemas.METRICS.names)
                    | {"study": STUDY, "run_id": run, "workload": row["workload"], "start": start, "metric": metric}
                    | {"n": 1000 * rounds if is_latency else rounds, "rounds": rounds}
                    | {"mean": value * factor, "p99": row.get(f"{metric}_p99")}
                )
    return rows


def checks() -> list[dict[str, Any]]:
    rows = []
    for row in [row for stage in STAGES.values() for row in stage if row["outcome"] == "ok"]:
        run = {"study": STUDY, "run_id": row["run_id"], "workload": row["workload"], "action": None}
        rows.append(run | {"check": "busy_machine", "level": "not applicable", "saw": "no telemetry of the CPUs"})
        for check, level, text in (("disturbed_round", "suspect", DISTURBED), ("zero_itl", "invalid", NO_GAPS)):
            fails = row["validity"] == level
            saw = {"level": level, "saw": text.split(": ", 1)[1]} if fails else {"level": "ok", "saw": "nothing odd"}
            rows.append(run | {"check": check, **saw, "action": f"Look into {check}." if fails else None})
    return rows


def device_series() -> pd.DataFrame:
    """Telemetry of the comparison's runs, as it were if each ran for 40 s."""
    rows = [
        {"study": STUDY, "run_id": row["run_id"], "workload": row["workload"], "round": number, "source": "npu-smi"}
        | {"metric": metric, "time_s": 5.0 * step, "value": value + step}
        for row in STAGES["confirm"]
        for number in range(2)
        for metric, value in (("npu_utilization_percent", 88.0), ("power_w", 310.0))
        for step in range(8)
    ]
    return pd.DataFrame(rows)


def search() -> list[dict[str, Any]]:
    """The audit of the search: a row each candidate and stage, and one that was not run."""
    rows = []
    for stage, candidates in STAGES.items():
        for row in candidates:
            outcome = {"refused": "refused"}.get(str(row["reason"]), "failed") if row["outcome"] != "ok" else "tried"
            seconds = 0.0 if outcome == "refused" else row["accelerator_s"]
            rows.append(
                {"study": STUDY, "stage": stage, "stage_title": TITLES.get(stage, stage), "outcome": outcome}
                | {name: row[name] for name in ("position", "candidate", "is_incumbent")}
                | {"verdict": "winner" if WINNERS.get(stage) == row["candidate"] else None, "reason": row["message"]}
                | {"run_ids": row["run_ids"], "shared_with": []}
                | {"accelerator_s": seconds, "load_accelerator_s": seconds * 0.6}
                | {"new_accelerator_s": seconds, "new_load_accelerator_s": seconds * 0.6}
                | {"new_deciding_accelerator_s": seconds * 0.5, "new_start_accelerator_s": seconds * 0.3}
            )
    return rows


def proof(**changes: Any) -> dict[str, Any]:
    """The proof of the winner; `changes` replace its fields."""
    rows = [row for row in improvements() if row["basis"] == "accelerator"]
    words = {"verdict": "better", "smallest_change_percent": 0.9}
    return {
        "verdict": "better",
        "why": "the gain holds: the search promised +128.4 %, 3 pairs of fresh starts found +121.6 %",
        "pairs": 3,
        "promised_change_percent": 128.4,
        **{name: value for name, value in rows[0].items() if name.startswith("change_")},
        "smallest_change_percent": 0.9,
        "wanted_half_width_percent": 42.8,
        "proposed": CONFIGURATION | {"engine": "sglang", "accelerators": 4},
        "proposed_command": COMMAND,
        "proposed_run_id": rows[0]["run_id"],
        "workloads": [
            Improvement.model_validate(row | {"title": WORKLOADS[row["workload"]], "n": 3, **words}).model_dump()
            for row in rows
        ],
    } | changes


COMMAND = "sglang serve Qwen/Qwen3-32B --tensor-parallel-size 4 --served-model-name '<a> & b'"


def winner_map() -> dict[str, Any]:
    """The map of a curve at which the winner is better from 46 in flight on."""
    return {
        "curve": "sharegpt",
        "load": "max_concurrency",
        "metric": OBJECTIVE,
        "basis": "accelerator",
        "text": "sharegpt: up to 38 in flight the baseline is better; from 46 in flight the winner is better.",
        "levels": [],
        "ranges": [
            {"best": ["baseline"], "from_load": 1, "to_load": 38},
            {"best": ["baseline", "winner"], "from_load": 38, "to_load": 46},
            {"best": ["winner"], "from_load": 46, "to_load": 256},
        ],
    }


def recommended() -> dict[str, Any]:
    rows = [row for row in improvements() if row["basis"] == "accelerator"]
    return {
        "study": STUDY,
        "command": COMMAND,
        "launch_command": "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp-size 4",
        "engine": "sglang",
        "engine_version": "0.5.6",
        "model": "Qwen/Qwen3-32B",
        "configuration": CONFIGURATION | {"engine": "sglang", "accelerators": 4},
        "environment_variables": {},
        "changed": True,
        "objective": OBJECTIVE,
        "per": "accelerator",
        "improvements": [
            Improvement.model_validate(row | {"title": WORKLOADS[row["workload"]], "n": 3}).model_dump() for row in rows
        ],
        "evidence": "proof",
        "proof": proof(),
        "winner_maps": [winner_map()],
        "run_id": rows[0]["run_id"],
        "baseline_run_id": rows[0]["baseline_run_id"],
    }


def study() -> dict[str, Any]:
    return {
        "study": STUDY,
        "title": "Qwen3-32B on eight NPUs",
        "model": {"id": "Qwen/Qwen3-32B", "revision": "9216db5781bf21249d130ec9da846c4624c16137"},
        "hardware": {"accelerator": "Ascend 910B", "device": "ascend", "per_node": 8},
        "engines": {"vllm": {"version": "0.32.0"}, "sglang": {"version": "0.5.6"}},
        "baseline": {"engine": "vllm"},
        "objective": {
            "metric": OBJECTIVE,
            "per": "accelerator",
            "on": "sharegpt",
            "margin_percent": 2.0,
            "slos": {"ttft_ms": 500.0, "tpot_ms": 50.0},
        },
        "protocol": {"rounds": 3, "warmup_requests": 4},
        "workloads": WORKLOADS,
        "stages": [
            {"name": name, "title": title, "candidates": [row["candidate"] for row in STAGES[name][1:]] or ["eagle"]}
            for name, title in TITLES.items()
        ],
    }


def spec(row: dict[str, Any]) -> RunSpec:
    model = study()["model"]
    return RunSpec(
        engine={"name": row["engine"], "version": row["engine_version"], "environment_sha256": run_id(row["engine"])},
        model={"id": model["id"], "variant": "base", "source": {"kind": "hub", **model}, "format": "safetensors"},
        hardware={"accelerator": "Ascend 910B", "device": "ascend", "count": row["accelerators"]},
        workload={
            "kind": "sharegpt",
            "parameters": {"num_requests": 1000, "seed": 42},
            "tokenizer": {"kind": "hub", **model},
            "generator_version": "1",
        },
        objective=OBJECTIVE,
        client={"name": "servelab", "version": "1"},
        protocol=study()["protocol"],
    )


def write_run(folder: Path, row: dict[str, Any]) -> None:
    """Writes `spec.json` and `manifest.json` of a row's run."""
    spec(row).write(folder / "spec.json")
    made_run.manifest(spec(row), MACHINE, devices=DEVICES, git=GIT).write(folder / "manifest.json")


def write(results: Path) -> Path:
    """Writes the study under `results/` and returns its folder."""
    folder = results / "studies" / STUDY
    for name, rows in STAGES.items():
        stage = folder / "stages" / name
        stage.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schemas.STAGE_TABLE), stage / "table.parquet")
        if name in TITLES:
            (stage / "decision.json").write_text(json.dumps(decision(name)))
    pq.write_table(pa.Table.from_pylist(improvements(), schema=schemas.IMPROVEMENTS), folder / "improvements.parquet")
    pq.write_table(pa.Table.from_pylist(metrics(), schema=schemas.METRICS), folder / "metrics.parquet")
    pq.write_table(pa.Table.from_pylist(checks(), schema=schemas.CHECKS), folder / "checks.parquet")
    pq.write_table(pa.Table.from_pylist(search(), schema=schemas.SEARCH), folder / "search.parquet")
    (folder / "recommended.json").write_text(json.dumps(recommended()))
    (folder / "study.json").write_text(json.dumps(study()))
    for row in [row for rows in STAGES.values() for row in rows]:
        for name in row["run_ids"]:
            run = results / "runs" / name
            run.mkdir(parents=True)
            write_run(run, row)
    return folder
