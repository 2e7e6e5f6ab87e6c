"""The preflight as a target, and at the start of a run: it says what is wrong, holds nothing and changes nothing."""

import re

import pytest

from servelab.search.preflight import CHECKS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checked(finished, tmp_path_factory):
    """A copy of the finished tiny study, which preflight adds a file to."""
    return finished.copy(tmp_path_factory.mktemp("preflight") / "workspace")


@pytest.fixture(scope="module")
def printed(checked):
    """What the command prints for the finished tiny study, of which one candidate has a flag that nobody knows."""
    return checked.snakemake("preflight", check=False)


def test_command_asks_the_real_engine_and_ends_with_an_error(printed, checked):
    (row,) = [row for row in checked.json("results/studies/tiny/preflight.json") if row["verdict"] == "error"]
    assert (row["check"], row["of"]) == ("options", "sequences: --no-such-flag")
    assert row["saw"] == "this release of llama.cpp has no --no-such-flag"
    assert "error: preflight: 1 error" in printed
    for check in CHECKS.names():
        assert f"\n{check} " in printed, "the table is printed whole"


def test_real_model_and_requests_are_looked_at(printed, checked):
    rows = {row["check"]: row for row in checked.json("results/studies/tiny/preflight.json") if row["of"] == "baseline"}
    assert re.search(r"context length 8,192 \(the model's\), longest request \d+ tokens", rows["context"]["saw"])
    assert "weights 0.1 GiB + KV" in rows["memory"]["saw"]


def test_nothing_is_measured_again_for_it(printed, checked):
    assert "Nothing to be done" in checked.snakemake()


def test_start_of_a_run_says_what_is_wrong_with_what_is_left(finished, tmp_path):
    workspace = finished.copy(tmp_path / "copy")
    study = workspace.study()
    study["stages"].append({"name": "more", "candidates": [{"options": {"context_length": 19}}]})
    workspace.write_study(study)
    started = workspace.snakemake()
    assert "tiny: preflight: error in context of more: context_length=19: context length 19 (set), " in started
    assert started.index("tiny: preflight: error") < started.index("begins: measure")
    assert "preflight" not in workspace.snakemake("-n")
