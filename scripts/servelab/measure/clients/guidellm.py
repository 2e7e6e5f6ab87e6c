"""guidellm, `guidellm run`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ProtocolSpec
from servelab.measure.clients import CLIENTS
from servelab.measure.clients.external import (
    ExternalClient,
    Row,
    on_monotonic_clock,
    tokenizer_folder,
    write_lines,
)
from servelab.measure.load import LoadPlan

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class GuideLlm(ExternalClient):
    """Reads the requests of its JSON report."""

    name = "guidellm"
    packages = ("guidellm",)
    arrivals = frozenset({"poisson", "constant", "replay"})
    results = "report.json"
    unsupported: ClassVar[Mapping[str, str]] = {
        "duration_s": "its time limit cuts off what is in flight",
        "saturation_in_flight": "it detects saturation by other signs",
    }
    definitions: ClassVar[Mapping[str, str]] = {
        "itl_ms": "No value: guidellm keeps no gaps between events.",
        "peak_output_tokens_per_s": "guidellm keeps no gaps: events are assumed to be evenly spaced.",
    }

    def check(self, protocol: ProtocolSpec, *, token_ids: bool, turns: bool) -> None:
        super().check(protocol, token_ids=token_ids, turns=turns)
        if protocol.arrivals == "replay" and protocol.max_concurrency is not None:
            raise ConfigError("client guidellm cannot do `arrivals: replay` with `max_concurrency`; remove the latter")

    def prepare(self, plan: LoadPlan, rows: list[Row], folder: Path, python: Path) -> list[str]:
        """See `ExternalClient.prepare`; like our own client, it opens one connection per request."""
        write_lines(folder / "requests.jsonl", (_line(plan, row) for row in rows))
        spec = {
            "backend": {
                "kind": "openai_http",
                "target": plan.base_url,
                "model": plan.model,
                "request_format": _PATHS[plan.endpoint],
                "timeout": plan.request_timeout_s,
                "http2": False,
                "validate_backend": False,
                "extras": {"headers": {"Connection": "close"}, "body": {"temperature": 0, **plan.body}},
            },
            "profile": _profile(plan) | {"rampup_duration": plan.ramp_up_s},
            "constraints": [{"kind": "max_requests", "count": len(rows)}],
            "tokenizer": {"kind": "huggingface_auto", "model": str(tokenizer_folder(plan, folder))},
            "data": [{"kind": "json_file", "path": str(folder / "requests.jsonl")}],
            "seed": {"kind": "static", "value": plan.seed},
            "outputs": [{"kind": "json", "path": str(folder / self.results)}, {"kind": "console"}],
        }
        (folder / "scenario.json").write_text(json.dumps({"spec": spec}), encoding="utf-8")
        return [
            *("env", f"GUIDELLM__MAX_WORKER_PROCESSES={plan.processes}", str(python), "-m", "guidellm"),
            *("run", "--config", str(folder / "scenario.json"), "--disable-console-interactive"),
        ]

    def records(self, plan: LoadPlan, rows: list[Row], results: Path) -> tuple[float, list[Row]]:
        """See `ExternalClient.records`; guidellm uses the wall clock.

        It queues requests in the workload's order and reports the prompt of those that succeeded.
        """
        (benchmark,) = json.loads(results.read_bytes())["benchmarks"]
        requests = [request for group in benchmark["requests"].values() for request in group or []]
        requests.sort(key=lambda request: float(request["info"]["timings"]["queued"]))
        for row, request in zip(rows, requests, strict=True):
            if request["request_args"] and row["prompt"] not in _texts(json.loads(request["request_args"])["body"]):
                raise ValueError(f"request {row['request_index']} has another prompt than the workload's")
        origin = min(float(request["info"]["scheduler_start_time"]) for request in requests)
        return on_monotonic_clock(origin), [_columns(plan, request, origin) for request in requests]


def _line(plan: LoadPlan, row: Row) -> Row:
    line = {"prompt": row["prompt"], "output_tokens_count": row["output_tokens"]}
    return line | {"relative_timestamp": row["arrival_s"]} if plan.arrivals == "replay" else line


def _profile(plan: LoadPlan) -> dict[str, Any]:
    if plan.arrivals == "replay":
        return {"kind": "replay", "schedule_turn": "timestamp"}
    if plan.request_rate != "inf":
        return {"kind": plan.arrivals, "rate": [plan.request_rate], "max_concurrency": plan.max_concurrency}
    if plan.max_concurrency is None:
        return {"kind": "throughput", "max_concurrency": None}
    return {"kind": "concurrent", "streams": [plan.max_concurrency]}


def _texts(body: dict[str, Any]) -> list[str]:
    """Texts that a request contains."""
    if "prompt" in body:
        return [body["prompt"]]
    return [part["text"] for message in body["messages"] for part in message["content"]]


def _columns(plan: LoadPlan, request: dict[str, Any], origin: float) -> Row:
    times = {name: at - origin for name, at in request["info"]["timings"].items() if isinstance(at, float) and at > 1e9}
    open_loop = plan.request_rate != "inf" or plan.arrivals == "replay"
    columns: Row = {
        "scheduled_s": times["targeted_start"] if open_loop else 0.0,
        "started_s": times.get("resolve_start"),
        "sent_s": times.get("request_start"),
        "first_token_s": times.get("first_token_iteration"),
        "last_token_s": times.get("last_token_iteration"),
        "end_s": times.get("request_end", times["resolve_end"]),
        "chunks": request["info"]["timings"]["token_iterations"],
    }
    if request["info"]["status"] != "completed":
        return columns | {"error": f"client: {request['info']['error'] or request['info']['status']}"}
    return columns | {
        "input_tokens": request["input_metrics"]["text_tokens"],
        "cached_tokens": request["input_metrics"]["cached_tokens"],
        "output_tokens": request["output_metrics"]["text_tokens"],
        "http_status": 200,
    }


CLIENTS.register(GuideLlm.name, GuideLlm())
