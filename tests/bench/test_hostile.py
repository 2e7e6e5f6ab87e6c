"""60 hostile servers, 60 hostile logs and 200 hostile containers: what they cost beside a sound one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from harness import ROOT, TIME_LIMIT_S, publish
from process_cost import ProcessCost, process_cost

sys.path.append(str(ROOT / "tests/unit"))

import hostile_containers
import hostile_logs
import hostile_servers
from made_load import write_requests
from stub_server import StubServer

from servelab.measure.load import LoadPlan

MOST = 4.0
"""The most that a hostile one may cost of a sound one: CPU time and peak memory of the whole process."""
LOG_BYTES = 2 << 20
REQUEST_TIMEOUT_S = 6.0
VERIFY = """
import sys
from pathlib import Path
from servelab.archive import verify
from servelab.core.cli import run
verify.recompute = lambda *_: "not tried"
def main():
    if verify.verify_archive(Path(sys.argv[1]), Path(sys.argv[2])).faults:
        sys.exit(1)
run(main)
"""


@dataclass(frozen=True)
class Cost(ProcessCost):
    """What a process took, and how it ended."""

    traceback: bool


def cost(command: list[str], folder: Path) -> Cost:
    with (folder / "stderr").open("w+b") as stderr:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
        took = process_cost(command, int(TIME_LIMIT_S), stdout=subprocess.DEVNULL, stderr=stderr, env=environment)
        stderr.seek(0)
        return Cost(took.cpu_s, took.peak_rss_mb, took.returncode, b"Traceback" in stderr.read())


def compared(rows: Iterator[tuple[str, str, Cost, Cost]], name: str) -> pd.DataFrame:
    """A row for each hostile one, beside the sound one that it is compared with."""
    table = pd.DataFrame(
        {
            "kind": kind,
            "outcome": outcome,
            "cpu_ratio": hostile.cpu_s / sound.cpu_s,
            "memory_ratio": hostile.peak_rss_mb / sound.peak_rss_mb,
            "traceback": hostile.traceback,
            "killed": hostile.returncode == -signal.SIGKILL,
        }
        for kind, outcome, hostile, sound in rows
    )
    counts = table.groupby("outcome").size().rename("count").reset_index()
    worst = table.sort_values("cpu_ratio", ascending=False).head(8)
    fattest = table.sort_values("memory_ratio", ascending=False).head(4)
    publish(name, name, {"outcomes": counts, "longest": worst, "largest": fattest})
    return table


def assert_bounded(table: pd.DataFrame, count: int) -> None:
    assert len(table) >= count
    assert not table.traceback.any()
    assert not table.killed.any(), table.kind[table.killed].tolist()
    assert table.cpu_ratio.max() <= MOST, table.loc[table.cpu_ratio.idxmax()].to_dict()
    assert table.memory_ratio.max() <= MOST, table.loc[table.memory_ratio.idxmax()].to_dict()


@pytest.mark.bench
def test_hostile_logs(tmp_path: Path) -> None:
    def read(content: str | bytes) -> Cost:
        log = tmp_path / "log"
        log.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
        return cost([sys.executable, str(ROOT / "scripts/read_log.py"), str(log)], tmp_path)

    def rows() -> Iterator[tuple[str, str, Cost, Cost]]:
        sound = {form: read(hostile_logs.sound(form, LOG_BYTES)) for form in ("console", "json", "csv")}
        for kind, make in hostile_logs.KINDS.items():
            content = make(random.Random(f"{kind} bench"), LOG_BYTES)
            hostile = read(content)
            yield kind, "read" if hostile.returncode == 0 else "refused", hostile, sound[hostile_logs.form_of(content)]

    assert_bounded(compared(rows(), "hostile-logs"), 60)


@pytest.mark.bench
def test_hostile_servers(tmp_path: Path) -> None:
    def send(server: StubServer, first: str) -> Cost:
        with server.running() as base_url:
            requests = write_requests(tmp_path / "requests.parquet", [first, "normal"] * 8)
            plan = LoadPlan(
                base_url=base_url, endpoint="chat", model="m", requests=requests, request_timeout_s=REQUEST_TIMEOUT_S
            )
            (tmp_path / "load.json").write_text(plan.model_dump_json())
            command = [sys.executable, "-m", "servelab.measure.load"]
            return cost([*command, "--load", f"{tmp_path}/load.json", "--output", str(tmp_path)], tmp_path)

    def rows() -> Iterator[tuple[str, str, Cost, Cost]]:
        sound = send(StubServer(), "normal")
        for kind in hostile_servers.KINDS:
            hostile = send(hostile_servers.HostileServer(kind, 7), "hostile")
            errors = pd.read_parquet(tmp_path / "requests.parquet", columns=["error"]).error
            assert errors[1::2].isna().all(), kind
            outcome = "answered" if pd.isna(errors[0]) else errors[0].split(":")[0]
            yield kind, outcome, hostile, sound

    assert_bounded(compared(rows(), "hostile-servers"), 60)


@pytest.mark.bench
def test_hostile_containers(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"

    def verified(made: Callable[[], bytes]) -> Cost:
        path.write_bytes(made())
        return cost([sys.executable, "-c", VERIFY, str(path), str(ROOT)], tmp_path)

    def rows() -> Iterator[tuple[str, str, Cost, Cost]]:
        sound = verified(lambda: hostile_containers.sound(random.Random(0)))
        for kind, seed in hostile_containers.drawn(200, seed=7):
            hostile = verified(lambda kind=kind, seed=seed: hostile_containers.made(kind, seed))
            yield kind, f"{kind}: {'holds' if hostile.returncode == 0 else 'refused'}", hostile, sound

    table = compared(rows(), "hostile-containers")
    assert_bounded(table, 200)
    assert not table.outcome.str.endswith("holds").any()
