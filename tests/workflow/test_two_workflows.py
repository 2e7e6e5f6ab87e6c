"""Two workflows at once on one results folder, each with a checkout of its own, as on two nodes of a cluster."""

import re
import shutil

import pytest
from workspace import Workspace, tiny_study

from servelab.core.result_lock import claim


def small_study(name):
    """Three runs, the same for every name: two server starts of the baseline, and a candidate."""
    stages = [{"name": "sequences", "candidates": [{"options": {"max_num_seqs": 2}}]}]
    return tiny_study(name) | {"stages": stages, "workloads": ["tiny"]}


@pytest.fixture
def checkouts(tmp_path):
    """Two checkouts with one results folder, each with a study of its own that asks for the same runs."""
    first, second = (Workspace.create(tmp_path / name) for name in ("first", "second"))
    for workspace, name in ((first, "one"), (second, "other")):
        workspace.write_study(small_study(name))
        workspace.write("config/config.yaml", f"studies: [{name}]\n")
    shutil.rmtree(second.folder / "results")
    (second.folder / "results").symlink_to(first.folder / "results")
    return first, second


@pytest.mark.slow
def test_each_run_is_measured_once_and_both_have_their_reports(checkouts):
    logs = [workspace.folder / "said.log" for workspace in checkouts]
    running = [workspace.begin(log) for workspace, log in zip(checkouts, logs, strict=True)]
    try:
        codes = [process.wait(900) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.wait(300)
    said = [log.read_text() for log in logs]
    assert codes == [0, 0], "\n".join(text[-3000:] for text in said)
    first = checkouts[0]
    runs = first.runs()
    assert len(runs) == 3
    measured = [run for text in said for run in re.findall(r"^([0-9a-f]{20}): 1 rounds, 4 requests$", text, re.M)]
    assert set(measured) == set(runs)
    assert sum(len(re.findall(r"^serving .* with llama.cpp on ", text, re.M)) for text in said) == 3
    folder = first.folder / "results/runs"
    assert sorted(path.name for path in folder.iterdir()) == sorted(runs)
    for name in ("one", "other"):
        assert (first.folder / f"results/studies/{name}/report.html").exists()


@pytest.mark.slow
def test_a_study_that_another_workflow_makes_is_refused_at_once(checkouts):
    first, _ = checkouts
    with claim(first.folder / "results/studies/one"):
        said = first.snakemake(check=False)
    assert re.search(
        r"studies/one: process \d+ of \w+ since .* UTC on .* is working on this; wait for it, or ask for other studies",
        said,
    )
    assert "Traceback" not in said
    assert not (first.folder / "results/studies/one").exists()
