"""NVIDIA's AIPerf, `aiperf profile`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ProtocolSpec
from servelab.measure.clients import CLIENTS
from servelab.measure.clients.external import (
    ONE_CONNECTION_EACH,
    ExternalClient,
    Row,
    on_monotonic_clock,
    read_lines,
    tokenizer_folder,
    write_lines,
)
from servelab.measure.load import LoadPlan


class AiPerf(ExternalClient):
    """Reads the records of its JSON lines."""

    name = "aiperf"
    packages = ("aiperf",)
    arrivals = frozenset({"poisson", "constant", "gamma", "replay"})
    takes_token_ids = True
    results = "artifacts/profile_export.jsonl"
    # It accepts a folder as tokenizer only if the hub is not set to offline, so we give an address without a hub.
    variables: ClassVar[Mapping[str, str]] = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    unsupported: ClassVar[Mapping[str, str]] = {
        "duration_s": "its time limit sends the workload again from its start",
        "saturation_in_flight": "it does not end a round because of the requests in flight",
        "keep_alive": ONE_CONNECTION_EACH,
    }
    definitions: ClassVar[Mapping[str, str]] = {
        "ttft_ms": "Starts before the connection is made.",
        "e2el_ms": "Starts before the connection is made.",
        "schedule_delay_ms": "Starts when its timing service released the request, not when it was due.",
        "request_rate_asked_per_s": "Uses when its timing service released the requests, not when they were due.",
    }

    def check(self, protocol: ProtocolSpec, *, token_ids: bool, turns: bool) -> None:
        """See `Client.check`."""
        super().check(protocol, token_ids=token_ids, turns=turns)
        if protocol.ramp_up_s and protocol.request_rate == "inf":
            raise ConfigError(
                f"client aiperf cannot do `ramp_up_s: {protocol.ramp_up_s:g}` at `request_rate: inf`; give a rate"
            )

    def prepare(self, plan: LoadPlan, rows: list[Row], folder: Path, python: Path) -> list[str]:
        """See `ExternalClient.prepare`; like our own client, it opens one connection per request."""
        write_lines(folder / "requests.jsonl", (_line(plan, row) for row in rows))
        command = [
            *("env", "-u", "HF_HUB_OFFLINE", "-u", "TRANSFORMERS_OFFLINE"),
            *(str(python), "-c", "from aiperf.cli import app; app()", "profile", "--model", plan.model),
            *("--url", plan.base_url, "--endpoint-type", plan.endpoint, "--streaming", "--use-legacy-max-tokens"),
            *("--input-file", str(folder / "requests.jsonl"), "--custom-dataset-type", "single-turn"),
            *("--dataset-sampling-strategy", "sequential", "--request-count", str(len(rows))),
            *("--tokenizer", str(tokenizer_folder(plan, folder)), "--use-server-token-count"),
            *("--connection-reuse-strategy", "never", "--request-timeout-seconds", f"{plan.request_timeout_s:g}"),
            *("--workers-max", str(plan.processes), "--record-processors", "1", "--random-seed", str(plan.seed)),
            *("--output-artifact-dir", str(folder / "artifacts"), "--export-level", "records", "--ui", "none"),
            *("--no-gpu-telemetry", "--no-server-metrics"),
        ]
        if plan.max_concurrency is not None or plan.request_rate == "inf":
            command += ["--concurrency", str(min(plan.max_concurrency or len(rows), len(rows)))]
        if plan.arrivals == "replay":
            command += ["--fixed-schedule"]
        elif plan.request_rate != "inf":
            command += ["--request-rate", str(plan.request_rate), "--arrival-pattern", plan.arrivals]
            if plan.arrivals == "gamma":
                command += ["--arrival-smoothness", str(plan.burstiness)]
            if plan.ramp_up_s:
                command += ["--request-rate-ramp-duration", str(plan.ramp_up_s)]
        return command

    def records(self, plan: LoadPlan, rows: list[Row], results: Path) -> tuple[float, list[Row]]:
        """See `ExternalClient.records`; AIPerf uses the wall clock, and a monotonic clock within a request."""
        results_of = {int(each["metadata"]["conversation_id"]): each for each in read_lines(results)}
        if results_of.keys() != {row["request_index"] for row in rows}:
            raise ValueError(f"it reports {len(results_of)} requests, the workload has {len(rows)}")
        origin_ns = min(
            results_of[row["request_index"]]["metadata"]["credit_issued_ns"] - round(1e9 * _due_s(plan, row))
            for row in rows
        )
        records = [_columns(plan, row, results_of[row["request_index"]], origin_ns) for row in rows]
        return on_monotonic_clock(origin_ns / 1e9), records


def _line(plan: LoadPlan, row: Row) -> Row:
    """A line of the input file; `extra` overrides the fields of the body that AIPerf sets itself."""
    extra: Row = {"temperature": 0, "stream_options": {"include_usage": True}, **plan.body}
    if row["prompt"] is None:
        extra["prompt"] = row["prompt_token_ids"]
    line = {
        "session_id": str(row["request_index"]),
        "text": row["prompt"] or "token ids",
        "output_length": row["output_tokens"],
        "extra": extra,
    }
    return line | {"timestamp": 1000 * row["arrival_s"]} if plan.arrivals == "replay" else line


def _due_s(plan: LoadPlan, row: Row) -> float:
    """When a replayed request is due; 0 otherwise, as the round then starts with the first request."""
    return float(row["arrival_s"]) if plan.arrivals == "replay" else 0.0


def _columns(plan: LoadPlan, row: Row, record: dict[str, Any], origin_ns: int) -> Row:
    metadata = record["metadata"]
    started_s = (metadata["request_start_ns"] - origin_ns) / 1e9
    scheduled_s = (metadata["credit_issued_ns"] - origin_ns) / 1e9 if plan.request_rate != "inf" else 0.0
    columns: Row = {
        "scheduled_s": row["arrival_s"] if plan.arrivals == "replay" else scheduled_s,
        "started_s": started_s,
        "sent_s": started_s,
        "end_s": (metadata["request_end_ns"] - origin_ns) / 1e9,
    }
    if error := record.get("error"):
        return columns | {"http_status": error.get("code"), "error": f"client: {error['type']}: {error['message']}"}
    values = {name: metric["value"] for name, metric in record["metrics"].items()}
    gaps = values.get("inter_chunk_latency", [])
    first_token_s = started_s + values["time_to_first_token"] / 1000
    return columns | {
        "first_token_s": first_token_s,
        "last_token_s": first_token_s + sum(gaps) / 1000,
        "input_tokens": values.get("usage_prompt_tokens"),
        "cached_tokens": values.get("usage_prompt_cache_read_tokens"),
        "output_tokens": values.get("usage_completion_tokens"),
        "chunks": len(gaps) + 1,
        "chunk_gaps_ms": gaps,
        "http_status": 200,
    }


CLIENTS.register(AiPerf.name, AiPerf())
