"""The runtime `apptainer`, against a double of the program that records what it is asked: no image is pulled here."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import pytest

from servelab.devices import DEVICES
from servelab.errors import ConfigError, Outage
from servelab.identity import file_sha256
from servelab.processes import Supervised
from servelab.runtimes import RUNTIMES, read_environment

APPTAINER = RUNTIMES.get("apptainer")
IMAGE = "docker.io/lmsysorg/sglang@sha256:" + "0123456789abcdef" * 4
DOUBLE = """\
#!{python}
import json, os, sys
with open({record!r}, "a") as record:
    record.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "pull":
    sys.exit(os.environ.get("PULL_FAILS", 0) and 1 or open(sys.argv[3], "w").close())
rest = sys.argv[sys.argv.index(next(word for word in sys.argv if word.endswith("image.sif"))) + 1 :]
inside = {{name.removeprefix("APPTAINERENV_"): value for name, value in os.environ.items()
           if name.startswith("APPTAINERENV_")}}
os.execve({python!r}, [{python!r}, *rest[1:]], inside)
"""


class Tool:
    """A tool whose version is the interpreter's."""

    name = "tool"

    def version_command(self, python: Path) -> list[str]:
        return [str(python), "-c", "import platform; print(platform.python_version())"]


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """What the double was asked so far."""
    record = tmp_path / "asked"
    program = tmp_path / "bin/apptainer"
    program.parent.mkdir()
    program.write_text(DOUBLE.format(python=sys.executable, record=str(record)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return lambda: [json.loads(line) for line in record.read_text().splitlines()]


@pytest.fixture
def describe(tmp_path):
    def write(**changes):
        file = tmp_path / "tool.image.yaml"
        content = {"image": IMAGE, "version": platform.python_version(), **changes}
        file.write_text("".join(f"{key}: {value}\n" for key, value in content.items()))
        return file

    return write


def test_image_is_pulled_once_by_its_digest(recorded, describe, tmp_path):
    file, folder = describe(), tmp_path / "env"
    environment = APPTAINER.build(Tool(), file, folder)
    assert APPTAINER.build(Tool(), file, folder) == environment == read_environment(folder / "environment.json")
    pull, ask = recorded()
    assert pull == ["pull", "--force", str(folder / "image.sif"), f"docker://{IMAGE}"]
    assert ask[:2] == ["exec", "--cleanenv"]
    assert (environment.version, environment.image) == (platform.python_version(), folder / "image.sif")
    assert environment.lock_sha256 == file_sha256(file)


def test_another_digest_is_another_environment(describe):
    first = file_sha256(describe())
    assert file_sha256(describe(image=IMAGE.replace("0123", "3210"))) != first


@pytest.mark.parametrize(("device", "flag"), [("nvidia", "--nv"), ("ascend", "/usr/local/dcmi:/usr/local/dcmi:ro")])
def test_a_server_sees_its_folders_its_device_and_nothing_else_of_the_host(
    recorded, describe, tmp_path, monkeypatch, device, flag
):
    """Started by the process supervision that servers are started with."""
    monkeypatch.setenv("OF_THE_HOST", "1")
    environment = APPTAINER.build(Tool(), describe(), tmp_path / "env")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    command, variables = APPTAINER.enter(
        environment,
        ["python3", "-c", code],
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        folders=[Path("/models"), Path("/run"), Path("/models")],
        device=DEVICES.get(device),
    )
    log = tmp_path / "log"
    started = Supervised(command, environment={**os.environ, **variables}, log=log)
    assert started.wait(30) == 0
    inside = json.loads(log.read_text())
    assert inside["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "OF_THE_HOST" not in inside
    asked = recorded()[-1]
    assert flag in asked
    assert asked.count("/models:/models") == asked.count("/run:/run") == 1
    assert asked[asked.index("--home") + 1] == f"{tmp_path / 'env/home'}:/servelab-home"
    assert asked.index(str(environment.image)) < asked.index("python3")


@pytest.mark.parametrize("image", ["lmsysorg/sglang:v0.5.9", "lmsysorg/sglang", "lmsysorg/sglang@sha256:12"])
def test_an_image_without_its_digest_is_refused(describe, image):
    with pytest.raises(ConfigError, match="image"):
        APPTAINER.version(describe(image=image), ())


def test_another_version_in_the_image_is_refused(recorded, describe, tmp_path):
    with pytest.raises(ConfigError, match=r"0\.0\.1 is described, tool in it is"):
        APPTAINER.build(Tool(), describe(version="0.0.1"), tmp_path / "env")
    assert not (tmp_path / "env/environment.json").exists()


def test_a_failed_pull_and_a_missing_program_are_outages(recorded, describe, tmp_path, monkeypatch):
    monkeypatch.setenv("PULL_FAILS", "1")
    with pytest.raises(Outage, match="apptainer pull"):
        APPTAINER.build(Tool(), describe(), tmp_path / "env")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Outage, match="cannot start apptainer"):
        APPTAINER.build(Tool(), describe(), tmp_path / "env")


def test_an_image_that_is_gone_is_an_outage(recorded, describe, tmp_path):
    environment = APPTAINER.build(Tool(), describe(), tmp_path / "env")
    environment.image.unlink()
    with pytest.raises(Outage, match=r"image\.sif is gone"):
        read_environment(tmp_path / "env/environment.json")
