"""A stub server, and how workers of pytest-xdist share tests: by file, all of vLLM together, long ones first."""

import re

import pytest
from servers.quirks import SCRIPTS
from servers.stub_server import StubServer

FIRST = ("test_results.py", "test_recorded_studies.py")
"""They run the studies that most of tests/workflow waits for, so two workers run both at once."""
MEANWHILE = (
    "test_bench.py",
    "test_charts.py",
    "test_zoo.py",
    "test_load.py",
    "test_runtimes.py",
    "test_telemetry.py",
)
"""The longest that need no study: with those of the engines they come before most of tests/workflow, which waits."""
LONGEST = ("test_archive_workflow.py", "test_reruns.py")
"""Each takes minutes of `make nightly`: begun among the last, one would run alone at the end."""


@pytest.fixture
def stub():
    """A server on a known schedule that is not started yet."""
    return StubServer(quirks=SCRIPTS)


@pytest.fixture
def server(stub):
    """Its address while it runs."""
    with stub.running() as base_url:
        yield base_url


def pytest_collection_modifyitems(items):
    for item in items:
        if "workflow" in item.path.parts and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.gate)  # they need studies that Snakemake runs for minutes

    def order(item):
        name = item.path.name
        needs_no_study = "engines" in item.path.parts or name in MEANWHILE
        return 0 if name in FIRST else 1 if needs_no_study else 2 if name in LONGEST else 3

    items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """`--dist loadgroup` would do, but xdist 3.8 sets the groups where pytest 9.2 no longer looks for them."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            # Two vLLM at once on two cores take far more than twice the time of one. A stand-in has its release
            # (0.17.1) and stays with its file: two Slurm clusters at once have jobs with the same numbers.
            return "vLLM" if re.search(r"\[vllm(?!-\d+\.)|_of_vllm", nodeid) else nodeid.split("::")[0]

    return ByFile(config, log)
