"""AISBench, `ais_bench --mode perf`: the client that Ascend's manuals name."""

from __future__ import annotations

import io
import itertools
import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from servelab.core.errors import ConfigError
from servelab.core.run_spec import ProtocolSpec
from servelab.measure.clients import CLIENTS
from servelab.measure.clients.external import ExternalClient, Row, read_lines, tokenizer_folder, write_lines
from servelab.measure.load import LoadPlan
from servelab.measure.load.requests import arrival_times

_MAIN = """
import os, sys
os.chdir(sys.argv.pop(1))
from ais_bench.benchmark.cli.task_manager import TaskManager
manager = TaskManager()
manager.args.dir_time_str = "round"
manager.run()
"""
"""What `ais_bench` runs, in the round's folder, with a folder of results that is not named by the time."""
_ABSENT = {
    "jieba": "",
    "func_timeout": "class FunctionTimedOut(Exception): ...\ndef func_timeout(*_): raise NotImplementedError\n",
}
"""Packages that it imports for tests of answers only, and that have no wheel: modules in their place."""
_MODELS = {"chat": "VLLMCustomAPIChat", "completions": "VLLMCustomAPI"}
_EVENTS = "AISBench counts every event, even one without content (only a role, the end, the usage)"


class AisBench(ExternalClient):
    """Reads the details of each request, and the times of its events from the database beside them.

    A finite rate is sent as a trace: AISBench draws arrivals without a seed, so it gets the times that ours would be.
    """

    name = "aisbench"
    packages = ("ais_bench_benchmark", "ais-bench-benchmark")
    arrivals = frozenset({"poisson", "constant", "gamma", "replay"})
    takes_token_ids = False
    results = "out/round/performances/server/workload_details.jsonl"
    unsupported: ClassVar[Mapping[str, str]] = {
        "duration_s": "it always sends all requests",
        "saturation_in_flight": "it does not end a round because of the requests in flight",
        "client_processes": "it is one process",
    }
    definitions: ClassVar[Mapping[str, str]] = {
        "ttft_ms": "Starts before a connection is there and ends at the first event; in a chat that can be the event "
        "with only a role.",
        "e2el_ms": "Starts before a connection is there and ends at the last event, which is that of the usage.",
        "tpot_ms": f"{_EVENTS}, so the first and last event can differ.",
        "itl_ms": f"{_EVENTS}, so there are more gaps.",
        "schedule_delay_ms": "Counts from the request sent with the least delay, as AISBench does not record when "
        "the round began.",
    }

    def check(self, protocol: ProtocolSpec, *, token_ids: bool, turns: bool) -> None:
        """See `Client.check`."""
        super().check(protocol, token_ids=token_ids, turns=turns)
        finite = protocol.request_rate != "inf" or protocol.arrivals == "replay"
        if finite and protocol.max_concurrency is not None:
            raise ConfigError("client aisbench cannot do a request rate with `max_concurrency`; remove one of them")
        if protocol.ramp_up_s and not finite:
            raise ConfigError(
                f"client aisbench cannot do `ramp_up_s: {protocol.ramp_up_s:g}` at `request_rate: inf`; give a rate"
            )

    def prepare(self, plan: LoadPlan, rows: list[Row], folder: Path, python: Path) -> list[str]:
        """See `ExternalClient.prepare`; it keeps its connections open for further requests."""
        due_s = _due_s(plan, rows)
        write_lines(folder / "requests.jsonl", (_line(row, due) for row, due in zip(rows, due_s, strict=True)))
        (folder / "absent").mkdir(exist_ok=True)
        for name, text in _ABSENT.items():
            (folder / "absent" / f"{name}.py").write_text(text, encoding="utf-8")
        config = _config(plan, rows, folder, tokenizer_folder(plan, folder))
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return [
            *("env", f"PYTHONPATH={folder.absolute() / 'absent'}", str(python.absolute()), "-c", _MAIN, str(folder)),
            *(str(folder.absolute() / "config.json"), "--work-dir", str(folder.absolute() / "out")),
            *("--mode", "perf", "--num-warmups", "0", "--debug"),
        ]

    def records(self, plan: LoadPlan, rows: list[Row], results: Path) -> tuple[float, list[Row]]:
        """See `ExternalClient.records`; AISBench uses the monotonic clock."""
        requests = sorted(read_lines(results), key=lambda request: int(request["id"]))
        if [request["id"] for request in requests] != list(range(len(rows))):
            raise ValueError(f"it reports {len(requests)} requests, the workload has {len(rows)}")
        times = _times(results.parent / "db_data")
        events = [times[(request["db_name"], request["time_points"]["__db_ref__"])] for request in requests]
        due_s = _due_s(plan, rows)
        begun = [points[0] - (due or 0) for points, due in zip(events, due_s, strict=True) if points]
        origin = min(begun, default=time.monotonic())
        end_s = max((points[-1] for points in events if points), default=origin) - origin
        columns = [
            _columns(request, [point - origin for point in points], due, end_s)
            for request, points, due in zip(requests, events, due_s, strict=True)
        ]
        return origin, columns


def _due_s(plan: LoadPlan, rows: list[Row]) -> list[float | None]:
    """When each request is due, from the first; None if it is as soon as one may be sent."""
    if plan.request_rate == "inf" and plan.arrivals != "replay":
        return [None] * len(rows)
    return list(arrival_times(plan, len(rows), [row["arrival_s"] for row in rows]))


def _line(row: Row, due_s: float | None) -> Row:
    """A line of the dataset. The prompt comes last: AISBench puts each field into the text that the earlier gave."""
    at = {} if due_s is None else {"timestamp": 1000 * due_s}
    return {"max_out_len": row["output_tokens"], **at, "question": row["prompt"]}


def _config(plan: LoadPlan, rows: list[Row], folder: Path, tokenizer: Path) -> dict[str, Any]:
    """Its configuration: a server, the requests as a dataset whose prompts are sent as they are, the summary."""
    own = "ais_bench.benchmark"
    timed = plan.request_rate != "inf" or plan.arrivals == "replay"
    in_flight = len(rows) if timed else min(plan.max_concurrency or len(rows), len(rows))
    server = {
        "abbr": "server",
        "attr": "service",
        "type": f"{own}.models.{_MODELS[plan.endpoint]}",
        "path": str(tokenizer.absolute()),
        "model": plan.model,
        "url": plan.base_url,
        "stream": True,
        "retry": 1,
        "batch_size": in_flight,
        "use_timestamp": timed,
        # With times the rate has no other use than the pauses of the thread that gave the last request free.
        "request_rate": 1 if timed else 0,
        "max_out_len": 1,
        "generation_kwargs": {"temperature": 0, **plan.body},
    }
    dataset = {
        "abbr": "workload",
        "type": f"{own}.datasets.custom.CustomDataset",
        "path": str((folder / "requests.jsonl").absolute()),
        "reader_cfg": {
            "input_columns": ["max_out_len", *(["timestamp"] if timed else []), "question"],
            "output_column": None,
        },
        "infer_cfg": {
            "prompt_template": {"type": f"{own}.openicl.icl_prompt_template.PromptTemplate", "template": "{question}"},
            "retriever": {"type": f"{own}.openicl.icl_retriever.ZeroRetriever"},
            "inferencer": {"type": f"{own}.openicl.icl_inferencer.GenInferencer"},
        },
    }
    calculator = {"type": f"{own}.calculators.DefaultPerfMetricCalculator", "stats_list": ["Average", "Median", "P99"]}
    summary = {
        "attr": "performance",
        "type": f"{own}.summarizers.DefaultPerfSummarizer",
        "calculator": calculator,
    }
    return {"models": [server], "datasets": [dataset], "summarizer": summary}


def _times(folder: Path) -> dict[tuple[str, int], list[float]]:
    """Times of events in seconds, by database and row: the start of the request first, then each event."""
    found = {}
    for file in folder.glob("*.db"):
        try:
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
                for row, array in database.execute("SELECT id, arr_blob FROM numpy_store"):
                    found[(file.name, row)] = np.load(io.BytesIO(array), allow_pickle=False).tolist()
        except (sqlite3.Error, EOFError) as error:
            raise ValueError(f"{file.name}: {error}") from error
    return found


def _columns(request: Row, points: list[float], due_s: float | None, end_s: float) -> Row:
    columns: Row = {"scheduled_s": due_s or 0.0}
    if points:
        columns |= {"started_s": points[0], "sent_s": points[0]}
    if not request["success"]:
        # AISBench does not record when a request failed; the end of the round is the latest possible time.
        return columns | {"end_s": end_s, "error": f"client: {request['error_info'] or 'no answer'}"}
    return columns | {
        "first_token_s": points[1],
        "last_token_s": points[-1],
        "end_s": points[-1],
        "input_tokens": request["input_tokens"],
        "output_tokens": request["output_tokens"],
        "chunks": len(points) - 1,
        "chunk_gaps_ms": [1000 * (later - earlier) for earlier, later in itertools.pairwise(points[1:])],
        "http_status": 200,
    }


CLIENTS.register(AisBench.name, AisBench())
