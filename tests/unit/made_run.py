"""A made run: three rounds in a closed loop on a server that does as it should, and all that the checks look at."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from servelab.core.identity import run_id
from servelab.core.run_spec import RunSpec
from servelab.core.seal import seal_of
from servelab.measure.load import LoadStats
from servelab.measure.run_files import (
    GitState,
    ManifestDevice,
    ManifestEngine,
    ManifestEnvironment,
    ManifestModel,
    ManifestWorkload,
    MeasuringMachine,
    RunManifest,
    RunStatus,
)
from servelab.metrics.definitions import RunData, summarise, summarise_rounds
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import record_array
from servelab.results.checks import Evidence

TEMPLATE_TOKENS = 30
ROUNDS = 3
REQUESTS = 40


def spec(**changes: Any) -> RunSpec:
    """A run's specification; `protocol` and `objective` are what the checks read of it."""
    source = {"kind": "path", "path": "/models/m", "revision": "1"}
    protocol = {"max_concurrency": 4} | changes.pop("protocol", {})
    return RunSpec(
        engine={"name": "llama.cpp", "version": "1", "environment_sha256": "0"},
        model={"id": "m", "variant": "base", "source": source, "format": "gguf"},
        hardware=changes.pop("hardware", {"accelerator": "CPU", "device": "cpu", "count": 1}),
        workload={
            "kind": "random",
            "parameters": {"endpoint": "chat", "num_requests": REQUESTS, "seed": 1},
            "tokenizer": source,
            "generator_version": "1",
        }
        | changes.pop("workload", {}),
        client={"name": "servelab", "version": "1"},
        protocol=protocol,
        **{"objective": "total_tokens_per_s"} | changes,
    )


STATS = LoadStats(wall_s=4.0, cpu_s=0.2, unread_p99_ms=0.4)


def status(**changes: Any) -> RunStatus:
    """A run's status, of one that went well."""
    return RunStatus(
        **{
            "run_id": "0" * 20,
            "outcome": "ok",
            "reason": None,
            "message": None,
            "log_lines": [],
            "rounds": ROUNDS,
            "requests": ROUNDS * REQUESTS,
            "requests_failed": 0,
            "success_rate": 1.0,
            "client_rounds": [STATS] * ROUNDS,
            "server_starts": 1,
            "startup_s": 1.0,
            "load_s": 20.0,
            "accelerator_s": 30.0,
            "started_at": "2026-11-01T11:00:00+00:00",
            "finished_at": "2026-11-01T12:00:00+00:00",
        }
        | changes
    )


def seal(folder: Path) -> None:
    """Seals a run's files as they are now."""
    file = folder / "status.json"
    status = json.loads(file.read_bytes())
    file.write_text(json.dumps(status | {"seal": seal_of(folder, status).model_dump(mode="json")}))


def manifest(run: RunSpec, machine: dict[str, Any] | None = None, **changes: Any) -> RunManifest:
    """The manifest of a run; `machine` replaces facts of its machine, `changes` whole parts."""
    facts = {"cpu": "a cpu", "cpus": 2, "cpus_usable": 2, "memory_bytes": 2**30, "kernel": "6.1"}
    made = RunManifest(
        run_id=run_id(run),
        engine=ManifestEngine(name=run.engine.name, version=run.engine.version),
        environment=ManifestEnvironment(runtime="venv", lock_sha256="0", packages={}),
        command=["serve"],
        environment_variables={},
        model=ManifestModel(format=run.model.format, source=run.model.source),
        workload=ManifestWorkload(requests_sha256="0", seed=1),
        client=run.client,
        devices=[ManifestDevice(index="0", name="a cpu", driver=None, memory_bytes=None)],
        machine=MeasuringMachine(**facts | {"architecture": "x86_64", "python": "3.11"} | (machine or {})),
        git=GitState(commit=None, dirty=None),
    )
    return made.model_copy(update=changes)


def records(protocol: Any, seed: int = 0, noise: float = 0.02) -> list[dict[str, Any]]:
    """Rows of RUN_REQUESTS: a server of four slots, with the same work in every round and `noise` in its speed.

    Without a request rate all are due at once and sent as slots become free (a slot a request in flight); with one they
    are sent when due and wait in the server.
    """
    work, draw = random.Random(0), random.Random(seed)
    sizes = [(work.randint(20, 200), work.randint(2, 60)) for _ in range(REQUESTS)]
    rows = []
    for number in range(ROUNDS):
        pace, slots, due = draw.gauss(1, noise), [0.0] * 4, 0.0
        for index, (asked, output) in enumerate(sizes):
            if protocol.request_rate != "inf":
                due += work.expovariate(protocol.request_rate)
            free = min(slots)
            scheduled = due
            sent = due + 0.0004 if protocol.request_rate != "inf" else free + 0.0004
            first = max(free, sent) + pace * (0.02 + asked * 0.0005)
            gaps = [pace * draw.uniform(8, 12) for _ in range(output - 1)]
            last = first + sum(gaps) / 1000
            slots[slots.index(free)] = last
            rows.append(
                {
                    "round": number,
                    "request_index": index,
                    "phase": "measured",
                    "scheduled_s": scheduled,
                    "started_s": sent - 0.0002,
                    "sent_s": sent,
                    "first_token_s": first,
                    "last_token_s": last,
                    "end_s": last + 0.0001,
                    "input_tokens_asked": asked,
                    "input_tokens": asked + TEMPLATE_TOKENS,
                    "cached_tokens": 0 if index == 0 else TEMPLATE_TOKENS - 5,
                    "output_tokens_asked": output,
                    "output_tokens": output,
                    "chunks": output,
                    "chunk_gaps_ms": gaps,
                    "unread_ms": 0.3,
                    "finish_reason": "length",
                    "http_status": 200,
                    "error": None,
                }
            )
    return rows


def telemetry(rows: list[dict[str, Any]], **values: float) -> pd.DataFrame:
    """A sample every half second of each round, from two seconds before its zero on; `values` replace the healthy."""
    healthy = {
        ("server", "requests_waiting"): 2.0,
        ("server", "process_start_unix_s"): 1.7e9,
        ("psutil", "machine_cpu_percent"): 90.0,
        ("psutil", "others_cpu_percent"): 2.0,
        ("psutil", "steal_cpu_percent"): 0.1,
        ("nvml", "gpu_utilization_percent"): 95.0,
        ("nvml", "throttle_reasons"): 4.0,
        **{("psutil", name): value for name, value in values.items() if name == "delayed_percent"},
    }
    samples = []
    for number in sorted({row["round"] for row in rows}):
        mine = [row for row in rows if row["round"] == number]
        prompt = sum(row["input_tokens"] or 0 for row in mine)
        end = max(row["end_s"] for row in mine)
        times = [step / 2 for step in range(-4, int(2 * end) + 2)]
        for time_s in times:
            part = max(0.0, min(1.0, time_s / end))
            now = {key: values.get(key[1], value) for key, value in healthy.items()}
            now["server", "prefix_cache_query_tokens_total"] = 1e6 * number + part * prompt
            now["server", "prefix_cache_hit_tokens_total"] = 1e5 * number + part * REQUESTS * (TEMPLATE_TOKENS - 5)
            samples += [(number, time_s, source, None, name, value) for (source, name), value in now.items()]
    return pd.DataFrame(samples, columns=schemas.TELEMETRY.names)


def evidence(
    rows: list[dict[str, Any]] | None = None,
    run: RunSpec | None = None,
    *,
    seed: int = 0,
    noise: float = 0.02,
    definitions: dict[str, str] | None = None,
    samples: pd.DataFrame | None = None,
    **changes: Any,
) -> Evidence:
    """What the checks look at for these rows (a healthy run's if none are given); `changes` replace its fields."""
    run = run or spec()
    rows = records(run.protocol, seed, noise) if rows is None else rows
    table = pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS)
    data = RunData(table, run.slos)
    values: dict[str, dict[int, float]] = {}
    for entry in summarise_rounds(data):
        values.setdefault(entry["metric"], {})[entry["round"]] = entry["value"]
    frame = telemetry(rows) if samples is None else samples
    made = Evidence(
        records=data.requests,
        spec=run,
        server_starts=1,
        summary={entry["metric"]: entry for entry in summarise(data, definitions or {})},
        rounds=values,
        client=[LoadStats(wall_s=4.0, cpu_s=0.4, unread_p99_ms=0.5)] * ROUNDS,
        telemetry=record_array(pa.Table.from_pandas(frame, schema=schemas.TELEMETRY, preserve_index=False)),
    )
    return replace(made, **changes)
