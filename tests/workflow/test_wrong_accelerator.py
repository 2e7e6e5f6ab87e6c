"""A study of one accelerator on a machine with another: refused before anything starts, or as soon as a job starts."""

import pytest
from workspace import Workspace, tiny_study

from servelab.machine.cpu import cpu_model

REFUSED = f"runs are of `NVIDIA H100 SXM`, but this machine has `{cpu_model()}`, so nothing is measured"


@pytest.fixture
def wrong(tmp_path):
    """The tiny study, which says that this machine's CPU is an H100."""
    workspace = Workspace.create(tmp_path / "wrong")
    study = tiny_study()
    workspace.write_study(study | {"hardware": study["hardware"] | {"accelerator": "NVIDIA H100 SXM"}})
    return workspace


@pytest.mark.slow
def test_the_workflow_stops_before_its_first_job(wrong):
    printed = wrong.snakemake(check=False)
    assert f"config/studies/tiny.yaml: hardware.accelerator: {REFUSED}" in printed
    assert "1 of " not in printed and not list((wrong.folder / "results").rglob("plan.json"))
