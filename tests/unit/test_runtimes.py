"""What every runtime must do, each in its turn; container programs are doubles that behave as their pages say.

`tests/engines/test_containers.py` does the same with the real programs, where they are at hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import docker_double
import psutil
import pytest
from made_wheel import make_wheel
from patience import until

from servelab.core.credentials import PASS_VARIABLES
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.identity import file_sha256, lock_sha256
from servelab.core.processes import Supervised
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import RUNTIMES, Environment, Needs, read_environment
from servelab.engines.server_to_start import Serve
from servelab.machine.devices import DEVICES, Device
from servelab.measure.server import Launch, Server

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
VERSION = "1.2.3"
IMAGE = "docker.io/lmsysorg/sglang@sha256:" + "0123456789abcdef" * 4
CONTAINERS = ("apptainer", "docker", "podman", "pyxis")
PROGRAMS = {"pyxis": ("srun", "enroot")}
DOUBLES = {"apptainer": "apptainer_double", "pyxis": "pyxis_double"}
DAEMONS = ("docker", "podman")
GPUS = [Device("2", key="GPU-aa", name="GPU"), Device("3", key="GPU-bb", name="GPU")]


class Tool:
    """A tool that comes as a Python package of one module."""

    name = "tool"
    host_variables = ()

    def version_command(self, python: Path) -> list[str]:
        return [str(python), "-c", "import tool; print('a banner'); print(tool.__version__)"]


@dataclass
class Place:
    """A runtime, its programs, and how its description of the tool is written."""

    name: str
    folder: Path
    describe: Callable[..., Path]
    made: Path
    """Where an environment as described is, made by an earlier test where that takes long."""

    def build(self, **changes: str) -> Environment:
        folder = self.folder / "env" if changes else self.made
        return self.runtime.build(Tool(), self.describe(**changes), folder)

    @property
    def runtime(self):
        return RUNTIMES.get(self.name)

    def asked(self) -> list[list[str]]:
        """What the double was asked so far."""
        record = self.folder / "asked"
        return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []

    def start(self, command: list[str], variables: dict[str, str] | None = None, **needs) -> Supervised:
        """A command in the environment, as a server is started."""
        given = {"reads": [], "writes": [self.folder], "device": DEVICES.get("cpu"), "devices": [], **needs}
        command, variables = self.runtime.enter(self.build(), command, variables or {}, Needs(**given))
        environment = {"PATH": os.environ["PATH"], **variables}
        return Supervised(command, environment=environment, log=self.folder / "log", grace_s=2)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Where the tests keep the one environment that takes seconds to make."""
    return tmp_path_factory.mktemp("venv") / "env"


@pytest.fixture(params=[name for name in RUNTIMES.names() if name != "none"])
def place(request, tmp_path, monkeypatch, installed) -> Iterator[Place]:
    """Every runtime that makes an environment, in turn, with what it needs on PATH."""
    name = request.param
    (tmp_path / "tool.py").write_text(f"__version__ = '{VERSION}'\n")
    python = program(tmp_path / "bin/tool-python", f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    if name == "venv":
        made = make_wheel(tmp_path, "tool", VERSION, {"tool.py": f"__version__ = '{VERSION}'\n".encode()})
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        pinned = f"tool=={{version}} --hash=sha256:{file_sha256(made)}\n"

        def describe(version: str = VERSION) -> Path:
            file = tmp_path / "tool.lock.txt"
            file.write_text(pinned.format(version=version))
            return file
    else:
        fixed = {"name": "of this test"} if name == "host" else {"image": IMAGE}

        def describe(**changes: str) -> Path:
            file = tmp_path / f"tool.{name}.yaml"
            content = {**fixed, "version": VERSION, "command": str(python), **changes}
            file.write_text("".join(f"{key}: {value}\n" for key, value in content.items()))
            return file

    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    daemon = None
    if name in CONTAINERS:
        double = DOUBLES.get(name, "docker_double")
        code = f"import sys; sys.path.insert(0, {str(HERE)!r}); from pathlib import Path; import {double}; "
        code += f"sys.exit({double}.client(Path({str(tmp_path)!r}), sys.argv[1:]))"
        for each in PROGRAMS.get(name, [name]):
            program(tmp_path / "bin" / each, f"#!{sys.executable}\n{code}\n")
        monkeypatch.setenv("SLURM_JOB_ID", "17")
    if name in DAEMONS:
        daemon = subprocess.Popen([sys.executable, docker_double.__file__, "daemon", str(tmp_path)])
        until((tmp_path / "socket").exists, "the daemon listens")
    yield Place(name, tmp_path, describe, installed if name == "venv" else tmp_path / "env")
    if daemon is not None:
        for process in [*psutil.Process(daemon.pid).children(recursive=True), daemon]:
            process.kill()
        daemon.wait()


only = lambda *names: pytest.mark.parametrize("place", names, indirect=True)  # noqa: E731


def test_an_environment_is_made_once_and_found_again(place):
    file = place.describe()
    assert place.runtime.version(file, ("tool",)) == VERSION
    made = place.runtime.build(Tool(), file, place.folder / "env")
    asked = len(place.asked())
    assert place.runtime.build(Tool(), file, place.folder / "env") == made
    assert place.name == "host" or read_environment(place.folder / "env/environment.json") == made
    assert len(place.asked()) == asked, "nothing is pulled twice"
    assert (made.tool, made.version, made.runtime) == ("tool", VERSION, place.name)
    assert made.lock_sha256 == lock_sha256(file)


def test_another_version_than_described_is_refused(place):
    """A lock of a version that is not to be had fails before there is anything to ask."""
    with pytest.raises(ServelabError) as refusal:
        place.build(version="0.0.1")
    assert place.name == "venv" or re.search(f"the file says 0.0.1, tool (here|in it) is {VERSION}", str(refusal.value))
    assert not (place.folder / "env/environment.json").exists()


def test_a_command_gets_its_variables_folders_and_ending(place, monkeypatch):
    monkeypatch.setenv("OF_THE_HOST", "1")
    (place.folder / "model").mkdir()
    code = (
        "import json, os, sys; print(json.dumps(dict(os.environ)));"
        f"open({str(place.folder / 'model/seen')!r}, 'w').close(); sys.exit(7)"
    )
    command = [str(place.build().python), "-c", code]
    server = place.start(command, {"GIVEN": "a b=$c"}, writes=[place.folder / "model"])
    assert server.wait(30) == 7
    inside = json.loads((place.folder / "log").read_text().splitlines()[-1])
    assert inside["GIVEN"] == "a b=$c"
    assert "OF_THE_HOST" not in inside
    assert (place.folder / "model/seen").exists()


def test_a_command_that_was_killed_is_told_from_one_that_exits(place):
    """As the kernel kills a process when memory runs out."""
    server = place.start([str(place.build().python), "-c", "import os; os.kill(os.getpid(), 9)"])
    assert server.wait(30) == -signal.SIGKILL


SERVER = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf])
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""
"""A server of two processes that does not heed SIGTERM."""

WAYS: dict[str, Callable[[Supervised], object]] = {
    "stopped": lambda server: server.stop(),
    "what was started is killed": lambda server: os.kill(server.pid, signal.SIGKILL),
    "its warden is killed": lambda server: os.kill(psutil.Process(server.pid).ppid(), signal.SIGKILL),
    "all in the job are killed": lambda server: [
        process.kill()
        for warden in [psutil.Process(psutil.Process(server.pid).ppid())]
        for process in [warden, *warden.children(recursive=True)]
    ],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_server_ends_with_its_job(place, way):
    assert_server_ends(place, WAYS[way])


@only(*DAEMONS)
def test_a_container_ends_with_the_client_of_its_daemon(place):
    assert_server_ends(place, lambda server: [child.kill() for child in psutil.Process(server.pid).children()])


def assert_server_ends(place: Place, end: Callable[[Supervised], object]) -> None:
    """All processes of a server, once its job has been ended that way."""
    told = place.folder / "pids"
    server = place.start([str(place.build().python), "-c", SERVER, str(told)])
    try:
        until(told.exists, "the server has started")
        processes = [psutil.Process(int(pid)) for pid in told.read_text().split()]
        root = psutil.Process(place.runtime.root(server.pid))
        assert {*processes} <= {root, *root.children(recursive=True)}
        end(server)
        with contextlib.suppress(Outage):  # that its warden was killed
            assert server.wait(30) is not None
        gone = lambda: not any(each.is_running() and each.status() != "zombie" for each in processes)  # noqa: E731
        until(gone, "its processes are gone")
    finally:
        server.stop()


@only(*CONTAINERS)
@pytest.mark.parametrize("image", ["lmsysorg/sglang:v0.5.9", "lmsysorg/sglang@sha256:12"])
def test_an_image_without_its_digest_is_refused(place, image):
    with pytest.raises(ConfigError, match="image"):
        place.runtime.version(place.describe(image=image), ())


@only(*CONTAINERS)
def test_an_image_that_is_gone_is_an_outage(place):
    place.build()
    if place.name not in DAEMONS:
        next((place.folder / "env").glob("image.s*")).unlink()
    else:
        (place.folder / "images").unlink()
    with pytest.raises(Outage, match=r"image\.s\w+ is gone|no longer has the image"):
        place.start(["true"])


@only(*CONTAINERS)
def test_a_model_is_read_only_and_its_links_are_followed(place):
    model, blobs, run = (place.folder / name for name in ("model", "blobs", "run"))
    for folder in (model, blobs, run):
        folder.mkdir()
    (blobs / "weights").touch()
    (model / "model.safetensors").symlink_to("../blobs/weights")
    place.start([str(place.build().python), "-c", ""], reads=[model, model], writes=[run]).wait(30)
    asked = " ".join(place.asked()[-1])
    for path, ending in [(model, "ro"), (blobs, "ro"), (run, "")]:
        bind = f"source={path},target={path}" if place.name in DAEMONS else f"{path}:{path}"
        ending = f"{',readonly' if place.name in DAEMONS else ':ro'}" if ending else ""
        assert len(re.findall(rf"{bind}{ending}[ ,]", asked)) == 1


GIVEN = {
    "nvidia": {
        "apptainer": ["--nv"],
        "pyxis": [],
        "docker": ["--gpus", '"device=GPU-aa,GPU-bb"'],
        "podman": ["--device", "nvidia.com/gpu=GPU-aa", "--device", "nvidia.com/gpu=GPU-bb"],
    },
    "ascend": {
        "apptainer": ["--bind", "/usr/local/dcmi:/usr/local/dcmi:ro"],
        "pyxis": [],
        **{name: ["--device", "/dev/davinci2", "--device", "/dev/davinci3"] for name in DAEMONS},
    },
}


@only(*CONTAINERS)
@pytest.mark.parametrize("kind", GIVEN)
def test_a_container_sees_its_own_devices(place, kind):
    """Where it sees no others, they are numbered from 0."""
    device = DEVICES.get(kind)
    needs = Needs(reads=[], writes=[], device=device, devices=GPUS)
    given = {**device.environment(GPUS), "OF_THE_STUDY": "2,3"}
    command, variables = place.runtime.enter(place.build(), ["serve"], given, needs)
    assert " ".join(GIVEN[kind][place.name]) in " ".join(command)
    told = {part for part in command if "=" in part}
    visible = device.variable
    if place.name not in DAEMONS:
        assert variables[f"{'APPTAINERENV_' if place.name == 'apptainer' else ''}{visible}"] == "2,3"
    else:
        assert {f"{visible}=0,1", "OF_THE_STUDY=2,3"} <= told


@only(*DAEMONS)
def test_a_daemon_is_asked_for_no_more_than_the_loopback(place, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    needs = Needs(reads=[], writes=[place.folder], device=DEVICES.get("cpu"), devices=[])
    first, _ = place.runtime.enter(place.build(), ["serve", "--host", "127.0.0.1"], {}, needs)
    again, _ = place.runtime.enter(place.build(), ["serve", "--host", "127.0.0.1"], {}, needs)
    assert "--network=host" in first
    assert not [part for part in first if part.startswith(("-p", "--publish"))]
    assert first[first.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
    assert f"servelab.folder={place.folder}" in first
    assert ("--cpuset-cpus=1,3" in first) == (place.name == "docker")
    name = first.index("--name") + 1
    assert first[name] != again[name]


@only(*DAEMONS)
def test_a_failure_of_the_daemon_is_no_finding(place):
    """It is told from an exit of the server by the code that `servelab.measure.server` takes for an outage."""
    place.build()
    needs = Needs(reads=[], writes=[], device=DEVICES.get("cpu"), devices=[])
    command, variables = place.runtime.enter(place.build(), ["true"], {}, needs)
    (place.folder / "images").unlink()
    server = Supervised(command, environment={"PATH": os.environ["PATH"], **variables}, log=place.folder / "log")
    assert server.wait(30) == Outage.exit_code
    assert "Error response from daemon" in (place.folder / "log").read_text()


OF_THE_SHELL = {
    **dict.fromkeys(("ASCEND_LAUNCH_BLOCKING", "NCCL_P2P_DISABLE", "HCCL_BUFFSIZE", "OMP_NUM_THREADS"), "1"),
    **dict.fromkeys(("APPTAINERENV_OMP_NUM_THREADS", "VLLM_USE_V1", "PYTHONHASHSEED", "DOCKER_DEFAULT_PLATFORM"), "1"),
    **{"LD_LIBRARY_PATH": "/opt/module/lib", "HF_TOKEN": "hf_" + "0123456789abcdefghij", "EDITOR": "vi"},
}


class Printer(type(ENGINES.get("vllm"))):
    """vLLM as far as its name and variables go; its server prints its environment, and answers that it is ready."""

    def command(self, serve: Serve) -> list[str]:
        return [str(serve.python), "-c", PRINT_AND_SERVE, str(serve.port)]


PRINT_AND_SERVE = """\
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print('has', json.dumps(dict(os.environ)), flush=True)
HTTPServer(('127.0.0.1', int(sys.argv[1])), Ready).serve_forever()
"""


def started(place: Place, **of_the_study: str) -> tuple[dict[str, str], Launch]:
    """What a server in the environment finds in its own, and how it was started."""
    environment, log = place.build(), place.folder / "server.log"
    needs = Needs(reads=[], writes=[place.folder], device=DEVICES.get("cpu"), devices=[])
    serve = Serve(environment.python, Path("/model"), "m", 0, {}, {}, folder=place.folder)
    server = Server(
        Printer(),
        serve,
        variables=of_the_study,
        log=log,
        startup_timeout_s=30,
        enter=partial(place.runtime.enter, environment, needs=needs),
        root=place.runtime.root,
        clear=place.runtime.clear,
    )
    try:
        server.start()
    finally:
        server.stop()
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("has ")]
    return json.loads(line.removeprefix("has ")), server.launch


def test_of_the_shell_only_what_a_site_names_reaches_a_server_and_a_study_comes_first(place, monkeypatch):
    place.build()
    for name, value in OF_THE_SHELL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(PASS_VARIABLES, "NCCL_P2P_DISABLE, HCCL_BUFFSIZE")
    found, launch = started(place, HCCL_BUFFSIZE="200", OMP_NUM_THREADS="3")
    kept = {name: found[name] for name in found.keys() & OF_THE_SHELL.keys()}
    assert kept == {"NCCL_P2P_DISABLE": "1", "HCCL_BUFFSIZE": "200", "OMP_NUM_THREADS": "3"}
    assert "PATH" in found and found["VLLM_NO_USAGE_STATS"] == "1", "what it needs, and what its adapter sets"
    assert launch.shell.passed == {"NCCL_P2P_DISABLE": "1", "HCCL_BUFFSIZE": "1"}
    harmless = {"APPTAINERENV_OMP_NUM_THREADS", "DOCKER_DEFAULT_PLATFORM", "EDITOR"}
    assert OF_THE_SHELL.keys() - set(launch.shell.kept_out) == harmless | launch.shell.passed.keys()
