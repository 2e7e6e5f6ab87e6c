"""Telemetry: what each source tells, whose CPU time is whose, and that nothing that fails disturbs the rest.

NVML and npu-smi are doubles here: the driver's library behind the real `pynvml`, and a tool that prints recorded
tables. psutil, the HTTP server's answers and the sampler are real.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pynvml
import pytest

from servelab.engines.adapters import ENGINES
from servelab.machine.devices import DEVICES, Device
from servelab.measure import telemetry
from servelab.measure.telemetry import SOURCES, Sampler, Watched, npu_smi
from servelab.measure.telemetry import machine as machine_source
from servelab.measure.telemetry import server as server_source
from servelab.metrics.tables import schemas

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
VLLM = ENGINES.get("vllm")
GPU = Device(index="1", key="GPU-1b7d9e3f-0000-0000-0000-000000000001", name="NVIDIA H100")
NPU = Device(index="1", key="ascend-3-0", name="Ascend 910B4")
CPU = Device(index="0", key="cpu", name="a processor")
PAGE = "".join(
    f'# TYPE {name} gauge\n{name}{{engine="0"}} 1\n' for names in VLLM.metric_names.values() for name in names
)


class NvmlLibraryDouble:
    """The driver's library as `pynvml` calls it, for one GPU; queries in `lacking` are not supported."""

    VALUES = {  # noqa: RUF012
        "nvmlDeviceGetPowerUsage": 412_500,
        "nvmlDeviceGetTotalEnergyConsumption": 9_000_250,
        "nvmlDeviceGetCurrentClocksThrottleReasons": pynvml.nvmlClocksThrottleReasonSwPowerCap,
    }

    def __init__(self) -> None:
        self.lacking: set[str] = set()

    def __getattr__(self, name):
        def call(*arguments):
            if name in self.lacking:
                return pynvml.NVML_ERROR_NOT_SUPPORTED
            if name == "nvmlDeviceGetHandleByUUID":
                return 0 if arguments[0].value == GPU.key.encode() else pynvml.NVML_ERROR_NOT_FOUND
            if name in self.VALUES:
                arguments[-1]._obj.value = self.VALUES[name]
            elif name == "nvmlDeviceGetUtilizationRates":
                arguments[-1]._obj.gpu = 87
            elif name == "nvmlDeviceGetMemoryInfo":
                arguments[-1]._obj.used = 5 << 30
            elif name == "nvmlDeviceGetClockInfo":
                arguments[-1]._obj.value = 1000 + arguments[1].value
            elif name == "nvmlDeviceGetTemperature":
                arguments[-1]._obj.value = 61
            return pynvml.NVML_SUCCESS

        return call


@pytest.fixture
def nvml(monkeypatch):
    library = NvmlLibraryDouble()
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return library


@pytest.fixture
def npu_smi_tool(tmp_path, monkeypatch):
    tool = tmp_path / "npu-smi"
    tool.write_text(f"#!/bin/sh\ncat {DATA / 'npu-smi-info-910b4.txt'}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@contextlib.contextmanager
def listening(answer):
    """The base URL of a server that calls `answer` with each connection, once it has read the request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        open_connections = []

        def serve():
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                open_connections.append(connection)
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        def handle(connection):
            with contextlib.suppress(OSError):
                connection.recv(65536)
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in open_connections:
                connection.close()


def answers(text, status="200 OK"):
    def answer(connection):
        body = text.encode()
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    return answer


def hangs(connection):
    connection.recv(1)


def trickles(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"#")
        time.sleep(0.05)


def says_no_http(connection):
    connection.sendall(b"\x00\x01garbage\r\n\r\n")
    connection.close()


def sampler(devices, url=None):
    return Sampler(Watched(devices, VLLM, lambda: [(url, os.getpid())] if url else []))


def rows_of(table, source):
    return table.filter(pc.equal(table["source"], source)).to_pylist()


@pytest.mark.parametrize("name", SOURCES.names())
def test_every_source_tells_all_it_says_it_does(name, nvml, npu_smi_tool):
    with listening(answers(PAGE)) as url:
        watched = Watched([GPU, NPU, CPU], VLLM, lambda: [(url, os.getpid())] * 2)
        source = SOURCES.get(name)
        assert source.concerns(watched)
        reader = source(watched)
        first = list(reader.read())
        time.sleep(0.6)  # shares of CPU time are of the time between two readings
        second = list(reader.read())
        reader.close()
    gauges_of_sglang = {"draft_accepted_fraction", "accepted_length_tokens"} & set(source.metrics)
    assert {reading.metric for reading in first + second} == set(source.metrics) - gauges_of_sglang
    assert {reading.device for reading in second} <= {None, "0", "1"}
    page = (ROOT / "docs/reference/files.md").read_text()
    (line,) = re.findall(rf"^- `{name}`: (.*)$", page, re.MULTILINE)
    assert re.findall(r"`(\w+)`", line) == list(source.metrics)


def test_nvml_gives_figures_in_the_units_of_their_names(nvml):
    readings = SOURCES.get("nvml")(Watched([GPU, CPU], VLLM, list)).read()
    assert {reading.metric: (reading.value, reading.device) for reading in readings} == {
        "devices": (1, None),
        "gpu_utilization_percent": (87, "1"),
        "memory_used_bytes": (5 << 30, "1"),
        "power_w": (412.5, "1"),
        "energy_j_total": (9000.25, "1"),
        "clock_sm_mhz": (1000 + pynvml.NVML_CLOCK_SM, "1"),
        "clock_memory_mhz": (1000 + pynvml.NVML_CLOCK_MEM, "1"),
        "throttle_reasons": (4, "1"),
        "temperature_c": (61, "1"),
    }


@pytest.mark.parametrize(
    ("file", "chips"),
    [
        (
            "npu-smi-info-910b4.txt",
            {
                "ascend-0-0": {"npu": 37, "memory": 28125, "power": 78.2, "temperature": 40},
                "ascend-3-0": {"npu": 0, "memory": 2849, "power": 77.9, "temperature": 41},
            },
        ),
        (
            "npu-smi-info-a3.txt",  # the power is of both chips together
            {
                "ascend-0-0": {"npu": 7, "memory": 61609, "temperature": 43},
                "ascend-0-1": {"npu": 9, "memory": 61625, "temperature": 44},
            },
        ),
        ("npu-smi-info-310p.txt", {"ascend-2-0": {"npu": 12, "memory": 1693, "temperature": 46}}),
        ("npu-smi-info-m.txt", {}),
    ],
)
def test_npu_smi_tables(file, chips):
    names = {"npu_utilization_percent": "npu", "power_w": "power", "temperature_c": "temperature"}
    found = npu_smi.parse((DATA / file).read_text())
    assert {
        key: {
            names.get(metric, "memory"): value / (1 << 20) if metric == "memory_used_bytes" else value
            for metric, value in figures.items()
        }
        for key, figures in found.items()
    } == chips


def test_server_figures_are_added_over_label_sets_and_need_all_their_samples():
    names = {
        "requests_running": ("running",),
        "kv_cache_usage_fraction": ("usage",),
        "prefix_cache_query_tokens_total": ("hit", "computed"),
        "prompt_tokens_total": ("hit", "absent"),
        "preemptions_total": ("not_a_number",),
    }
    page = (
        '# HELP running Running.\n# TYPE running gauge\nrunning{engine="0"} 3\nrunning{engine="1"} 4\n'
        'usage{engine="0"} 0.5\nusage{engine="1"} 0.25\nrunning_more 9\nhit 1e+02\ncomputed 20\nnot_a_number NaN\n'
    )
    assert {metric: value for metric, value, _ in server_source.parse(page, names)} == {
        "requests_running": 7,
        "kv_cache_usage_fraction": 0.375,
        "prefix_cache_query_tokens_total": 120,
    }


def moment(cpus_s: dict[int, float], server: tuple[float, float], client: tuple[float, float], at_s: float = 10.0):
    """Busy seconds of each CPU; CPU time and waiting of server and client."""
    cpus = {cpu: np.array([at_s, busy, 0.0]) for cpu, busy in cpus_s.items()}
    return machine_source._Moment(at_s, cpus, machine_source._Group(*server), machine_source._Group(*client))


@pytest.mark.parametrize(
    ("busy", "server", "client", "pinned", "delayed_percent"),
    [
        # all CPUs are the server's; its threads wait for each other and for nobody else
        ({0: 10, 1: 10}, (19, 6), (1, 1), (), 0),
        # others have a tenth of them, and 6 s of its waiting are its own
        ({0: 10, 1: 10}, (17, 6), (1, 1), (), 8),
        # others have most of the machine, but it hardly waits
        ({0: 10, 1: 10}, (2, 0.1), (1, 0.1), (), 2),
        # a sibling has CPU 1, the server its own, and the client waits for nobody
        ({0: 8, 1: 10}, (8, 0.5), (0.1, 0), (0,), 0),
        # another program is on the server's CPU
        ({0: 10, 1: 0}, (6, 4), (0, 0), (0,), 40),
        # many threads wait for most of two CPUs: never more than all of their time
        ({0: 10, 1: 10}, (1, 60), (0, 0), (), 100 * 19 / 61),
        # others are busy, but there is always an idle CPU: its threads wait until they wake up
        ({0: 5, 1: 8}, (4, 0.8), (1, 0.1), (), 0),
    ],
)
def test_delay_is_waiting_for_cpus_that_others_had(busy, server, client, pinned, delayed_percent, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    before, now = moment({0: 0, 1: 0}, (0, 0), (0, 0), 0.0), moment(busy, server, client)
    found = {
        each.metric: each.value for each in machine_source._waits(before, now, frozenset(pinned), sees_server=True)
    }
    assert found["delayed_percent"] == pytest.approx(delayed_percent)
    assert found["server_waited_percent"] == pytest.approx(100 * server[1] / max(10, sum(server)))


WAIT = """
import os, time
from servelab.engines.adapters import ENGINES
from servelab.measure.telemetry import SOURCES, Watched

source = SOURCES.get("psutil")(Watched([], ENGINES.get("vllm"), list))
list(source.read())
until = time.monotonic() + 0.7
while time.monotonic() < until:
    pass
found = {reading.metric: reading.value for reading in source.read()}
print(found["client_waited_percent"], found["delayed_percent"], found["siblings_cpu_percent"], len(found))
"""


def test_a_program_on_the_same_cpu_delays_and_the_workflow_s_own_is_named():
    """A busy process of the same workflow shares a CPU with the run."""
    cpu = min(os.sched_getaffinity(0))
    pin = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\n"
    with subprocess.Popen([sys.executable, "-c", f"{pin}while True: pass"]) as busy:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts"), "SERVELAB_COORDINATOR_PID": str(busy.pid)}
        try:
            said = subprocess.check_output([sys.executable, "-c", pin + WAIT], env=environment, text=True)
        finally:
            busy.kill()
    waited, delayed, siblings, _ = map(float, said.split())
    assert waited > 15 and delayed > 15 and siblings > 0


@pytest.mark.parametrize(
    "answer",
    [hangs, trickles, says_no_http, answers("", "404 Not Found"), answers('vllm:num_preemptions_total{engine="0 x\n')],
    ids=["hangs", "trickles", "no HTTP", "not found", "not Prometheus"],
)
def test_a_server_that_does_not_tell_is_left_out_and_said_once(answer, capfd):
    with listening(answer) as url, sampler([CPU], url) as sampling:
        sampling.sample_now()
        sampling.sample_now()
    table = sampling.table(0)
    assert rows_of(table, "server") == []
    assert len({row["time_s"] for row in rows_of(table, "psutil")}) >= 2
    assert capfd.readouterr().err.count("telemetry: server cannot be read") == 1


def test_a_reading_that_fails_beside_others_or_as_the_load_ends_is_no_message(capfd):
    said = iter([answers(PAGE), hangs])
    with listening(lambda connection: next(said)(connection)) as url, sampler([CPU], url) as sampling:
        sampling.sample_now()
        sampling.sample_now()
    with pytest.raises(KeyboardInterrupt), listening(hangs) as url, sampler([CPU], url) as sampling:
        sampling.sample_now()
        raise KeyboardInterrupt
    assert capfd.readouterr().err == ""


def test_a_server_that_hangs_delays_no_other_source(monkeypatch):
    monkeypatch.setattr(telemetry, "INTERVAL_S", 0.02)
    with listening(hangs) as url, sampler([CPU], url) as sampling:
        sampling.sample_now()  # until the server's time is over
        table = sampling.table(0)
    assert len({row["time_s"] for row in rows_of(table, "psutil")}) >= 5


def test_times_are_on_the_rounds_clock():
    with sampler(DEVICES.get("cpu").find()) as sampling:
        sampling.sample_now()
        origin = time.monotonic()
        sampling.sample_now()
    assert sampling.table(0).schema == schemas.TELEMETRY
    assert all(row["time_s"] >= 0 for row in rows_of(sampling.table(0), "psutil"))
    rows = [row for row in rows_of(sampling.table(1, origin), "psutil") if row["metric"] == "memory_used_bytes"]
    assert [row["round"] for row in rows] == [1, 1]
    assert rows[0]["time_s"] < 0 <= rows[1]["time_s"]
