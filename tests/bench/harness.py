"""What the benches share: a stub server, a client run and what it cost, and the tables that are printed and kept.

On a machine that others use too, `SERVELAB_BENCH_LOCK` names a file that is locked while runs are measured
that are compared with each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from servelab.measure.clients import CLIENTS
from servelab.measure.load import LoadPlan
from servelab.metrics.tables import schemas

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "results/bench"
REPEATS = 5
TIME_LIMIT_S = 170.0
"""Of one run: a client that hangs must not hold the machine."""

CPUS = sorted(os.sched_getaffinity(0))
STUB_CPU = CPUS[-1]
CLIENT_CPUS = CPUS[:-1] or CPUS
"""The stub has one CPU to itself and the client has the rest, so that neither takes from the other."""


class Records:
    """What a stub says it did: times in ns on the system's monotonic clock."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as saved:
            self.received_ns: np.ndarray = saved["received_ns"]
            self.late_ms: np.ndarray = saved["late_ns"] / 1e6
            """How much later than scheduled each token was written."""
            tokens = saved["tokens"]
            self.written_ns: list[np.ndarray] = np.split(saved["written_ns"], np.cumsum(tokens)[:-1])

    def last(self, count: int) -> pd.DataFrame:
        """The last requests as a client should have recorded them; a row each, columns of `schemas.RUN_REQUESTS`."""
        rows = [
            {
                "sent_s": received / 1e9,
                "first_token_s": written[0] / 1e9,
                "last_token_s": written[-1] / 1e9,
                "output_tokens": len(written),
                "chunk_gaps_ms": np.diff(written) / 1e6,
                "error": None,
            }
            for received, written in zip(self.received_ns[-count:], self.written_ns[-count:], strict=True)
        ]
        return pd.DataFrame(rows)


@dataclass
class Stub:
    """A running stub server; `records` is there once it has ended."""

    base_url: str
    records: Records | None = None


@contextlib.contextmanager
def stub_server(folder: Path, schedule: Mapping[str, float], cpu: int | None = STUB_CPU) -> Iterator[Stub]:
    """A stub in a process of its own, which ends with the block."""
    saved = folder / "stub.npz"
    command = [sys.executable, str(HERE / "bench_stub.py"), "--schedule", json.dumps(schedule), "--records", str(saved)]
    process = subprocess.Popen(
        [*command, *(["--cpu", str(cpu)] if cpu is not None else [])], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        stub = Stub(f"http://127.0.0.1:{int(process.stdout.readline())}")
        yield stub
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        stub.records = Records(saved)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@dataclass(frozen=True)
class Run:
    """One run of a client: its records and what it cost."""

    records: pa.Table
    wall_s: float
    cpu_s: float
    """User and system time of all its processes, from start to exit."""
    peak_rss_bytes: int
    """Most resident memory of all its processes together."""
    samples: list[tuple[float, float]]
    """Monotonic time, and CPU time of all processes until then."""

    @property
    def tokens(self) -> int:
        """Output tokens that the server says it sent."""
        return int(pc.sum(self.records["output_tokens"]).as_py() or 0)

    def load_cpu_s(self, stub: Records) -> float:
        """CPU time from the moment the stub got the first request until the client's exit: start-up taken off.

        A client's own reckoning after the load is part of it, since ours reads the answers only then.
        """
        times, spent = zip(*self.samples, strict=True)
        return self.cpu_s - float(np.interp(stub.received_ns[0] / 1e9, times, spent))


def write_workload(path: Path, requests: int, tokens: int) -> Path:
    """`requests` short prompts that ask for `tokens` tokens each."""
    rows = [
        {
            "request_index": index,
            "phase": "measured",
            "prompt": f"Request {index} of a bench.",
            "prompt_token_ids": None,
            "input_tokens": 8,
            "output_tokens": tokens,
            "arrival_s": None,
        }
        for index in range(requests)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.WORKLOAD_REQUESTS), path)
    return path


def write_tokenizer(path: Path) -> Path:
    """A tokenizer for clients that must have one: a token a word, all words the same."""
    tokenizer = Tokenizer(WordLevel({"word": 0}, unk_token="word"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(path))
    return path


def stub_plan(stub: Stub, folder: Path, requests: int, tokens: int, **settings: Any) -> LoadPlan:
    """A plan that puts `requests` streams of `tokens` tokens on a stub."""
    return LoadPlan(
        base_url=stub.base_url,
        endpoint="completions",
        model="stub",
        requests=write_workload(folder / "requests.parquet", requests, tokens),
        tokenizer=write_tokenizer(folder / "tokenizer.json"),
        **settings,
    )


def run_client(
    name: str, python: Path, plan: LoadPlan, folder: Path, cpus: list[int] | None = None, tolerate: str | None = None
) -> Run:
    """Runs a client on its CPUs; every request must succeed, since a failed one costs less.

    Requests whose error begins with `tolerate` count as successes.
    """
    folder.mkdir(parents=True)
    command = CLIENTS.get(name).command(plan, folder, python)
    if "--" in command:  # the client itself, without what ends it after a time
        command = command[command.index("--") + 1 :]
    cost = _run(command, folder / "client.log", cpus or CLIENT_CPUS)
    records = CLIENTS.get(name).read(plan, folder).records
    if tolerate is not None:
        tolerated = pc.fill_null(pc.starts_with(records["error"], tolerate), False)
        error = pc.if_else(tolerated, None, records["error"])
        records = records.set_column(records.schema.get_field_index("error"), "error", error)
    errors = [error for error in records["error"].to_pylist() if error is not None]
    assert not errors, f"{name}: {len(errors)} of {len(records)} requests failed, such as: {errors[0]}"
    return Run(records, *cost)


def _run(command: list[str], log: Path, cpus: list[int]) -> tuple[float, float, int, list[tuple[float, float]]]:
    """Wall time, CPU time, peak memory and the CPU time's course of a command with all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=lambda: os.sched_setaffinity(0, set(cpus))
        )
    samples = [(started, 0.0)]
    peak = 0
    try:
        while process.poll() is None:
            assert time.monotonic() < started + TIME_LIMIT_S, f"{command} does not end: {log.read_text()[-2000:]}"
            cpu_s, resident = _look(psutil.Process(process.pid))
            samples.append((time.monotonic(), cpu_s))
            peak = max(peak, resident)
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    wall_s = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0, f"{command} ended with {process.returncode}: {log.read_text()[-2000:]}"
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak, samples


def _look(process: psutil.Process) -> tuple[float, int]:
    """CPU seconds (of ended children too) and resident bytes of a process and all below it."""
    cpu_s, resident = 0.0, 0
    with contextlib.suppress(psutil.Error):  # ended just now
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                cpu_s += sum(each.cpu_times()[:4])
                resident += each.memory_info().rss
    return cpu_s, resident


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keeps others off the machine for what is compared with each other, if they heed the same lock."""
    path = os.environ.get("SERVELAB_BENCH_LOCK")
    if path is None:
        yield
        return
    time.sleep(1)  # for others that wait: they get their turn between two of ours
    with Path(path).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def publish(name: str, title: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Prints a bench's tables and keeps them under `results/bench/`, with the machine and the time."""
    about = {"machine": machine(), "measured": datetime.now(UTC).isoformat(timespec="seconds")}
    text = [f"# {title}", f"{about['machine']}; {about['measured']}"]
    for heading, table in tables.items():
        text += [f"## {heading}", table.to_markdown(index=False, floatfmt=".3g")]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text("\n\n".join(text) + "\n")
    rows = {heading: json.loads(table.to_json(orient="records")) for heading, table in tables.items()}
    (RESULTS / f"{name}.json").write_text(json.dumps(about | {"tables": rows}, indent=1) + "\n")
    print("\n" + "\n\n".join(text))


def machine() -> str:
    """What the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = psutil.virtual_memory().total / 2**30
    return f"{len(CPUS)} × {model}, {memory:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}"
