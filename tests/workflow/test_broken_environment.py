"""An environment that cannot serve stops its study before anything is measured, and says what to do."""

import sys

import pytest
from workspace import NEW, WORKLOADS, Workspace, tiny_study, yaml


@pytest.mark.slow
def test_a_broken_environment_is_no_result_of_a_candidate(tmp_path):
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "xllamacpp.py").write_text(f'__version__ = "{NEW}"\n')
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    workspace = Workspace.create(tmp_path / "project")
    workspace.write("envs/broken.host.yaml", yaml.safe_dump({"name": "broken", "version": NEW, "command": str(python)}))
    study = tiny_study()
    study["engines"] = {"llama.cpp": {"version": NEW, "runtime": "host", "lock": "envs/broken.host.yaml"}}
    study["stages"], study["workloads"] = study["stages"][1:], ["tiny"]
    workspace.write_study(study)
    workspace.write("config/workloads.yaml", yaml.safe_dump({"tiny": WORKLOADS["tiny"]}))
    (workspace.folder / "results/envs").unlink()  # its own: nothing of this test stays behind

    printed = workspace.snakemake(check=False)

    assert "the environment of llama.cpp" in printed and "cannot serve this study" in printed
    assert "has no attribute 'Server'" in printed
    assert "make lock" in printed
    assert not list((workspace.folder / "results").glob("runs/*/status.json"))
    assert not list((workspace.folder / "results").glob("envs/*/checked-*"))
