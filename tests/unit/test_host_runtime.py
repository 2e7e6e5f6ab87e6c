"""The runtime `host`: what is on the host already, told from other installations by its own word and its name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from servelab.core.errors import ConfigError
from servelab.engines.runtimes import RUNTIMES

HOST = RUNTIMES.get("host")


class Tool:
    """A tool whose version is the interpreter's."""

    name = "tool"
    host_variables = ("PLACE", "OTHER_PLACE")

    def version_command(self, python: Path) -> list[str]:
        return [str(python), "-c", "import platform; print('a banner'); print(platform.python_version())"]


VERSION = ".".join(map(str, sys.version_info[:3]))


@pytest.fixture
def describe(tmp_path):
    def write(**changes):
        file = tmp_path / "tool.host.yaml"
        content = {"name": "of this test", "version": VERSION, "command": sys.executable, **changes}
        file.write_text("".join(f"{key}: {value}\n" for key, value in content.items()))
        return file

    return write


def test_places_that_the_tool_names_are_passed_if_they_are_set(describe, tmp_path, monkeypatch):
    for name in ("NEEDED", "PLACE", "ANY"):
        monkeypatch.setenv(name, f"/{name}")
    built = HOST.build(Tool(), describe(variables="[NEEDED, PLACE]"), tmp_path / "env")
    assert built.variables == {"NEEDED": "/NEEDED", "PLACE": "/PLACE"}
    assert HOST.build(Tool(), describe(), tmp_path / "other").variables == {"PLACE": "/PLACE"}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"command": "no-such-program"}, "there is no program `no-such-program` here"),
        ({"variables": "[NOT_SET_ANYWHERE]"}, "NOT_SET_ANYWHERE not set here"),
        ({"comand": "python"}, "did you mean `command`"),
    ],
)
def test_what_is_not_as_described_is_refused(describe, tmp_path, changes, wrong):
    with pytest.raises(ConfigError) as refusal:
        HOST.build(Tool(), describe(**changes), tmp_path / "env")
    assert wrong in str(refusal.value)
    assert not (tmp_path / "env/environment.json").exists()
