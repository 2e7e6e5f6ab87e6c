"""Lines that released servers print (tests/data/engine_logs): each failure is told by its reason, no other is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from servelab.engines.adapters import ENGINES
from servelab.measure.server import _PORT_TAKEN

DATA = Path(__file__).parents[1] / "data/engine_logs"
KINDS = ("out_of_memory", "unsupported_argument", "missing_model", "crashed", "port_taken")
LOGS = {path.stem: yaml.safe_load(path.read_text()) for path in DATA.glob("*.yaml")}
LOGGED = [
    pytest.param(name, kind, entry, id=f"{name}-{kind}-{number}")
    for name, log in LOGS.items()
    for kind in KINDS
    for number, entry in enumerate(log["failures"][kind])
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
    assert set(log["failures"]) == set(KINDS)
    assert all(entry["lines"] for entry in log["ready"])
    assert log["workers"]
    assert log["sigterm"]
    assert log["cache_reset"]


@pytest.mark.parametrize(("name", "kind", "entry"), LOGGED)
def test_failure_is_told_by_its_reason(name, kind, entry):
    reason, lines = ENGINES.get(name).explain_failure(printed(entry))
    taken = any(_PORT_TAKEN.search(line) for line in printed(entry))
    assert taken == (kind == "port_taken")
    if kind != "port_taken":
        assert reason == (kind if entry["lines"] else None)
    for line in lines:  # what a reader is shown has no time, process or level before it
        assert not line.startswith(("[20", "[11/", "\x1b", "(APIServer", "(EngineCore", "ERROR ", "0.0"))


@pytest.mark.parametrize(("name", "entry"), NORMAL)
def test_what_is_printed_on_the_way_to_readiness_is_no_failure(name, entry):
    reason, _ = ENGINES.get(name).explain_failure(printed(entry))
    assert reason is None
    assert not any(_PORT_TAKEN.search(line) for line in printed(entry))
