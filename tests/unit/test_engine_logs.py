"""Lines that released servers print (tests/data/engine_logs): each failure is told by its reason, no other is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from servelab.engines.adapters import ENGINES

DATA = Path(__file__).parents[1] / "data/engine_logs"
KINDS = ("out_of_memory", "unsupported_argument", "missing_model", "crashed", "port_taken", "environment")
LOGS = {path.stem: yaml.safe_load(path.read_text()) for path in DATA.glob("*.yaml")}
LOGGED = [
    pytest.param(name, kind, entry, id=f"{name}-{kind}-{number}")
    for name, log in LOGS.items()
    for kind in KINDS
    for number, entry in enumerate(log["failures"].get(kind, []))
]
NORMAL = [
    pytest.param(name, entry, id=f"{name}-{number}")
    for name, log in LOGS.items()
    for number, entry in enumerate(log["ready"])
]


def printed(entry):
    """Its lines with something in each blank, such as `<port>`."""
    return [re.sub(r"<(pid|worker|port)>", "4321", re.sub(r"<host>", "127.0.0.1", line)) for line in entry["lines"]]


@pytest.mark.parametrize("engine", [each for each in ENGINES if not each.already_runs], ids=lambda engine: engine.name)
def test_every_engine_has_its_lines(engine):
    log = LOGS[engine.name]
    assert log["engine"] == engine.name
    assert log["ready_path"] == engine.ready_path
    assert set(log["failures"]) >= {*KINDS} - {"environment"}
    assert all(entry["lines"] for entry in log["ready"])
    assert log["workers"]
    assert log["sigterm"]
    assert log["cache_reset"]


@pytest.mark.parametrize(("name", "kind", "entry"), LOGGED)
def test_failure_is_explained_by_its_reason(name, kind, entry):
    why = ENGINES.get(name).explain_failure(printed(entry))
    assert (why.reason or "crashed") == {"port_taken": "port"}.get(kind, kind)
    assert (why.kind == "environment") == (kind in ("port_taken", "missing_model", "environment"))
    for line in why.lines:  # no time, process or level before the text
        assert not line.startswith(("[20", "[11/", "\x1b", "(APIServer", "(EngineCore", "ERROR ", "0.0"))


@pytest.mark.parametrize(("name", "entry"), NORMAL)
def test_what_is_printed_on_the_way_to_readiness_is_no_failure(name, entry):
    assert ENGINES.get(name).explain_failure(printed(entry)).reason is None


CRASHES = Path(__file__).parents[1] / "data/crash-logs"
EXPECTED = json.loads((CRASHES / "expected.json").read_text())
"""Each log's class (whose fault), reason, and the text that its reader must see."""


@pytest.mark.parametrize("expected", EXPECTED, ids=[each["id"] for each in EXPECTED])
def test_crash_is_explained(expected):
    log = (CRASHES / "logs" / f"{expected['id']}.log").read_text().splitlines()
    why = ENGINES.get(expected["engine"]).explain_failure(log)
    print(f"{expected['id']:22}{why.kind:12}{why.reason or '':22}{why.message[:120]}")
    assert expected["cls"] in (why.kind, "either")
    assert (why.reason or "crashed") == expected["reason"]
    assert re.search(expected["telling"], why.message)
    assert bool(why.remedy) == (why.kind == "environment")


HELD = (
    "ValueError: Free memory on device cuda:0 ({}/79.1 GiB) on startup is less than desired GPU memory utilization (0.9"
)


@pytest.mark.parametrize(
    ("engine", "line", "kind", "reason"),
    [
        ("vllm", HELD.format("10.2"), "environment", "environment"),
        ("vllm", HELD.format("77.2"), "result", "out_of_memory"),
        ("vllm", "OSError: [Errno 28] No space left on device: '/root/.cache/vllm'", "environment", "environment"),
        ("sglang", "RuntimeError: CUDA error: an illegal memory access was encountered", "result", "crashed"),
        ("sglang", "[2025-11-06 16:55:24] Ignore import error when loading x: No module named 'x'", "result", None),
        ("vllm", "Dumping input data for V1 engine with config: unsupported, no space left on device", "result", None),
        ("mindie", "ImportError: libascendcl.so: cannot open shared object file", "environment", "environment"),
        ("vllm", "KeyError: 'getpwuid(): uid not found: 1000'", "environment", "environment"),
        ("vllm", "OSError: [Errno 116] Stale file handle: '/root/.triton/cache/x.so'", "environment", "environment"),
        ("vllm", "OSError: [Errno 12] Cannot allocate memory: no memory", "result", "out_of_memory"),
        ("vllm", "OSError: /m does not appear to have a file named config.json", "environment", "missing_model"),
        ("vllm", "RuntimeError: No HIP GPUs are available", "environment", "environment"),
        ("vllm", "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:1')", "environment", "port"),
        (
            "vllm",
            "vllm serve: error: the following arguments are required: model_tag",
            "result",
            "unsupported_argument",
        ),
        ("sglang", "RuntimeError: CUDA error: invalid argument", "result", "crashed"),
        ("llama.cpp", "error loading model: missing tensor 'blk.0.ssm_dt.bias'", "environment", "environment"),
        ("llama.cpp", "error loading model: invalid split file name: m-00001", "environment", "missing_model"),
        ("sglang", "RuntimeError: CUDA driver initialization failed, is there a GPU?", "environment", "environment"),
        ("vllm", "x.OutOfResources: out of resource: shared memory, Required: 1", "result", "crashed"),
        ("llama.cpp", "Illegal instruction (core dumped)", "environment", "environment"),
    ],
)
def test_faults_of_a_node_are_told_from_results(engine, line, kind, reason):
    why = ENGINES.get(engine).explain_failure([line])
    assert (why.kind, why.reason) == (kind, reason), why.message


def test_general_fault_is_explained_by_a_special_one_of_another_line():
    banner = "ERROR: This container was built for NVIDIA Driver Release 580.65 or later, but"
    why = ENGINES.get("tensorrt-llm").explain_failure([banner, "", "RuntimeError: No CUDA GPUs are available"])
    assert banner in why.message and "driver" in why.remedy


OUTER = json.loads((CRASHES / "outer.json").read_text())
"""What programs write before each line that they pass on."""


@pytest.mark.parametrize("outer", ["", *OUTER])
def test_log_that_another_program_passes_on_is_explained(outer):
    frame = ['  File "linear.py", line 1, in load', "    assert loaded.shape == data.shape", "    ^^^^^^^^^^^^"]
    said = ["EngineCore failed to start.", "Traceback (most recent call last):", *frame, "AssertionError"]
    log = [
        f"{outer}(APIServer pid=1) (EngineCore_DP0 pid=6) ERROR 02-06 16:34:06 [core.py:936] {line}" for line in said
    ]
    why = ENGINES.get("vllm").explain_failure(
        [*log, f"{outer}(APIServer pid=1) RuntimeError: Engine core failed to start."]
    )
    assert why.message == "AssertionError: assert loaded.shape == data.shape"
