"""Another workflow that uses this one as a module, from a folder outside the checkout, as snakedeploy lays it out."""

import shutil
import subprocess

import pytest
from workspace import Workspace

MODULE = """\
configfile: "config/config.yaml"


module servelab:
    snakefile:
        "{checkout}/Snakefile"
    config:
        config


"""


RENAMED = """\
use rule * from servelab as servelab_*


onstart:
    servelab.onstart()


rule answer:
    default_target: True
    input:
        rules.servelab_all.input,
        answer="results/studies/tiny/recommended.json",
    output:
        "answer.json",
    shell:
        "cp {input.answer} {output}"
"""


def snakemake(folder, checkout, *arguments, check=True):
    """Runs the workflow of a folder with the code of a checkout; what it printed."""
    command = Workspace(checkout).command(*arguments)
    command[command.index("profiles/default")] = str(checkout / "profiles/default")
    done = subprocess.run(
        command,
        cwd=folder,
        env=Workspace(checkout).environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == check, done.stdout[-6000:]
    return done.stdout


@pytest.mark.slow
def test_another_workflow_measures_what_is_missing_under_the_same_names(workspace, tmp_path):
    checkout, folder = workspace.folder, tmp_path / "folder of mine"
    folder.mkdir()
    shutil.move(checkout / "config", folder / "config")
    shutil.move(checkout / "results", folder / "results")
    here = Workspace(folder)
    shutil.rmtree(folder / "results/studies")
    before = here.runs()
    lost = next(run for run in before if here.json(f"results/runs/{run}/status.json")["outcome"] == "ok")
    shutil.rmtree(folder / "results/runs" / lost)
    (folder / "Snakefile").write_text(MODULE.format(checkout=checkout) + RENAMED)

    said = snakemake(folder, checkout)
    after = here.runs()
    assert {run for run in after if after[run] != before.get(run)} == {lost} and after.keys() == before.keys()
    assert "tiny, " in said and "runs done" in said  # the lines of progress, which `onstart` begins
    assert here.json("answer.json") == here.json("results/studies/tiny/recommended.json")
    assert (folder / "results/studies/tiny/report.html").exists() and not (checkout / "results").exists()
    assert "Nothing to be done" in snakemake(folder, checkout)
