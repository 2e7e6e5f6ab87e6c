"""A real llama.cpp in real containers, by docker: served, measured, and ended however the job ends.

This runs only where docker is installed; its daemon is started by the test, which needs root. The image
comes from a registry that the test serves; the host's programs and the engine's environment are mounted into it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from engines import jobs
from engines.conftest import Installed, install
from image_registry import registry
from test_kill import WAYS, below, kill_each, until
from test_kill import running as running_run

from servelab.core.identity import lock_sha256
from servelab.engines.runtimes import RUNTIMES
from servelab.machine.lease import lease

pytestmark = pytest.mark.slow
CLIENT, EVERYTHING = "SIGKILL of the container's client", "SIGKILL of all in the job"
PROGRAMS = {"docker": ("docker", "dockerd")}
HIGHEST = 4096
"""Of processes and files: a machine may not let a container have more than the test itself."""


def _docker(folder: Path, patch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    """A daemon of the test's own, without a network of its own."""
    socket = f"unix://{folder}/docker.sock"
    patch.setenv("DOCKER_HOST", socket)
    flags = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"]
    places = [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid", f"--host={socket}"]
    with (folder / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen(["dockerd", *flags, *places], stdout=log, stderr=log, start_new_session=True)
    ask = ["docker", "version"]
    while subprocess.run(ask, capture_output=True, check=False).returncode and daemon.poll() is None:
        time.sleep(0.2)
    if daemon.poll() is not None:
        pytest.skip(f"docker's daemon does not start here: {(folder / 'daemon.log').read_text()[-300:]}")
    return daemon


@pytest.fixture(scope="module", params=PROGRAMS)
def image(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A container program that works here, and an image that it can pull."""
    name = request.param
    if missing := [program for program in PROGRAMS[name] if shutil.which(program) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    if os.geteuid():
        pytest.skip("needs root")
    # A daemon's socket has a short path.
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    with pytest.MonkeyPatch.context() as patch, registry() as (_, reference):
        daemon = _docker(folder, patch)
        try:
            yield name, reference
        finally:
            left = subprocess.run([name, "ps", "--all", "--quiet"], capture_output=True, text=True, check=False).stdout
            daemon.terminate()
            daemon.wait(30)
            for mount in [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]:
                if mount.startswith(f"{folder}/"):  # docker's daemon leaves that of its network
                    subprocess.run(["umount", mount], check=False)
            shutil.rmtree(folder)
            assert left == "", "no container is left, running or not"


@pytest.fixture(scope="module")
def contained(image, tmp_path_factory) -> Installed:
    """llama.cpp's environment and the host's `/usr` inside a container."""
    name, reference = image
    installed = install("llama.cpp")
    environment = installed.environment_json.parent.resolve()
    most = [min(HIGHEST, resource.getrlimit(limit)[1]) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)]
    flags = [
        *(f"--volume={folder}:{folder}:ro" for folder in {"/usr", sys.base_prefix, str(environment)}),
        *(f"--ulimit={limit}={count}:{count}" for limit, count in zip(("nofile", "nproc"), most, strict=True)),
    ]
    described = tmp_path_factory.mktemp("description") / f"llama.cpp.{name}.image.yaml"
    content = {
        "image": reference,
        "version": installed.environment.version,
        "command": str(environment / "venv/bin/python"),
        "flags": flags,
    }
    described.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in content.items()))
    folder = tmp_path_factory.mktemp("envs") / f"llama.cpp-{lock_sha256(described)[:12]}"
    RUNTIMES.get(name).build(installed.engine, described, folder)
    return replace(installed, environment_json=folder / "environment.json")


def container_processes(name: str) -> list[psutil.Process]:
    """All processes of the one container that runs."""
    (identifier,) = subprocess.run([name, "ps", "-q"], capture_output=True, text=True, check=True).stdout.split()
    asked = [name, "container", "inspect", "--format", "{{.State.Pid}}", identifier]
    pid = int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def test_a_run_in_a_container(image, contained, requests_path, tmp_path):
    name, reference = image
    run = contained.run(contained.spec(rounds=2), requests_path)
    output = jobs.folder(tmp_path / "runs", run)
    code, said = jobs.measure(tmp_path / "runs", [run])
    assert code == 0, said
    status = jobs.status(tmp_path / "runs", run)
    assert (status["outcome"], status["rounds"], status["success_rate"]) == ("ok", 2, 1.0), status
    manifest = json.loads((output / "manifest.json").read_text())
    assert reference in manifest["command"]
    assert (manifest["environment"]["runtime"], manifest["environment"]["image"]) == (name, reference)
    telemetry = pq.read_table(output / "telemetry.parquet").to_pylist()
    resident = [row["value"] for row in telemetry if row["metric"] == "server_rss_bytes"]
    assert resident, "the server's own processes are seen"
    assert min(resident) > 64 << 20, "and not the client's, which takes little"


@pytest.mark.parametrize("way", [*WAYS, CLIENT, EVERYTHING])
def test_a_container_ends_with_its_job(way, image, contained, endless_path, tmp_path):
    name, _ = image
    with running_run(contained, endless_path, tmp_path, "servelab.measure.load", 2) as run:
        inside = container_processes(name)
        assert len(inside) >= 2, "the guard and the server"
        if way in WAYS:
            WAYS[way](run)
        elif way == EVERYTHING:
            kill_each(run.tree)
        lives = lambda process: process.is_running() and process.status() != psutil.STATUS_ZOMBIE  # noqa: E731
        if way == CLIENT:

            def killed_again() -> bool:  # the job starts another one after the first
                with contextlib.suppress(psutil.NoSuchProcess):  # not one that asks about containers, or removes one
                    kill_each(each for each in below(run.measure, f"{name} run ") if each.name() == name)
                return not lives(run.measure)

            until(killed_again, "the end of the job")
        until(lambda: not any(lives(process) for process in [*inside, *run.tree]), "the end of the container")
        with lease("cpu", 1):
            pass
        if way != CLIENT:
            assert not run.output.exists()
    asked = [name, "ps", "--all", "--quiet"]
    until(lambda: subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "", "its removal")
