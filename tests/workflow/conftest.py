"""The tiny study and the recorded studies, run once for all tests of the workflow."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from workspace import Workspace, code_sha256


@pytest.fixture(scope="session", autouse=True)
def own_leases(tmp_path_factory):
    """Device locks of this worker's own: these tests look at no speed, so no run has to wait for another worker's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVELAB_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def run_once(tmp_path_factory):
    """Runs a workspace by name; the first worker of pytest-xdist runs it, and each worker gets a copy.

    In the folder of SERVELAB_TEST_RUNS, if that is set, later test suites find it, unless the code has changed since.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    if kept := os.environ.get("SERVELAB_TEST_RUNS"):
        shared = Path(kept) / code_sha256()
        shared.mkdir(parents=True, exist_ok=True)

    def run(name, *arguments):
        folder, log = (shared / f"{name}{end}" for end in ("", ".log"))
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not log.exists():
                shutil.rmtree(folder, ignore_errors=True)
                first = Workspace.create(folder)
                log.write_text(first.snakemake(*arguments))
        workspace = Workspace(folder).copy(tmp_path_factory.mktemp(name) / "workspace")
        workspace.log = log.read_text()
        return workspace

    return run


@pytest.fixture(scope="session")
def finished(run_once):
    """The tiny study, run to its end once. Tests change copies of it."""
    return run_once("finished", "--verbose")


@pytest.fixture
def workspace(finished, tmp_path):
    """A copy of the finished study to change."""
    return finished.copy(tmp_path / "copy")


@pytest.fixture(scope="session")
def recorded(run_once):
    """The recorded studies, made once. No test changes them."""
    return run_once("recorded", "--configfile", "config/recorded.yaml")


@pytest.fixture(scope="session")
def archived_example(run_once):
    """The recorded example, made and archived once. Tests change copies of it."""
    return run_once("example", "archive", "--config", "studies=[]", "recorded=[example]")
