"""The tiny study, run once for all tests of the workflow."""

import pytest
from workspace import Workspace


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The tiny study, run to its end once. Tests change copies of it."""
    workspace = Workspace.create(tmp_path_factory.mktemp("workflow") / "tiny")
    workspace.output = workspace.snakemake()
    return workspace


@pytest.fixture
def workspace(finished, tmp_path):
    """A copy of the finished study to change."""
    return finished.copy(tmp_path / "copy")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """The recorded studies, made once. No test changes them."""
    workspace = Workspace.create(tmp_path_factory.mktemp("recorded") / "project")
    workspace.log = workspace.snakemake("--configfile", "config/recorded.yaml")
    return workspace
