"""An engine's version is raised and put back: what is measured, what the study keeps of both, what its report says.

And a study of another accelerator than the machine's, which measures nothing.
"""

import json
import re
import sys
import zipfile

import pandas as pd
import pytest
from workspace import ARCHIVE_STUDY, NEW, OLD, Workspace, tiny_study

from servelab.machine.cpu import cpu_model

pytestmark = pytest.mark.slow

COSTS = re.compile(r"tiny: (\d+) server starts left if the winners stay .*, about (\S+) accelerator-hours by past runs")


def test_a_study_of_another_accelerator_stops_before_its_first_job(tmp_path):
    workspace = Workspace.create(tmp_path / "wrong")
    content = tiny_study()
    content["hardware"]["accelerator"] = "NVIDIA H100 SXM"
    workspace.write_study(content)
    printed = workspace.snakemake(check=False)
    refused = f"runs are of `NVIDIA H100 SXM`, but this machine has `{cpu_model()}`, so nothing is measured"
    assert f"config/studies/tiny.yaml: hardware.accelerator: {refused}" in printed
    assert "1 of " not in printed and not list((workspace.folder / "results").rglob("plan.json"))


def study(version):
    """A bad flag, and a stage that nothing wins: 3 configurations, the baseline on two starts; 2 rounds each."""
    content = tiny_study()
    lock = {} if version == NEW else {"lock": f"envs/llama.cpp-{version}.lock.txt"}
    return content | {
        "engines": {"llama.cpp": {"version": version, **lock}},
        "protocol": content["protocol"] | {"rounds": 2},
        "stages": content["stages"][1:],
        "workloads": ["tiny"],
    }


@pytest.fixture(scope="module")
def upgrade(tmp_path_factory):
    """The study at the old release, raised to the new one, and put back: what each step measured and left."""
    workspace = Workspace.create(tmp_path_factory.mktemp("versions") / "tiny")
    steps = {}
    for step, version in (("old", OLD), ("new", NEW), ("back", OLD)):
        workspace.write_study(study(version))
        forecast = workspace.snakemake("-n")
        measured = workspace.measured_by()
        folder = workspace.folder / "results/studies/tiny"
        steps[step] = {
            "forecast": forecast,
            "measured": measured,
            "runs": set(workspace.runs()),
            "history": pd.read_parquet(folder / "history.parquet"),
            "answers": pd.read_parquet(folder / "answers.parquet"),
            "recommended": (folder / "recommended.json").read_bytes(),
            "kept": {file.stem: json.loads(file.read_text()) for file in (folder / "answers").iterdir()},
            "html": (folder / "report.html").read_text(),
        }
    return workspace, steps


def versions(workspace, runs):
    return [workspace.json(f"results/runs/{run}/spec.json")["engine"]["version"] for run in runs]


def test_an_upgrade_measures_exactly_the_engines_runs_and_keeps_the_old(upgrade):
    workspace, steps = upgrade
    assert versions(workspace, steps["old"]["measured"]) == [OLD] * 4
    assert versions(workspace, steps["new"]["measured"]) == [NEW] * 4
    assert steps["old"]["runs"] < steps["new"]["runs"]


def test_a_roll_back_measures_nothing_and_gives_the_old_answer(upgrade):
    _, steps = upgrade
    assert steps["back"]["measured"] == set()
    assert "tiny: 6 server starts left if the winners stay (4 runs measured)" in steps["back"]["forecast"]
    assert steps["back"]["recommended"] == steps["old"]["recommended"] != steps["new"]["recommended"]


def test_a_dry_run_says_what_the_upgrade_costs(upgrade):
    workspace, steps = upgrade
    starts, hours = COSTS.search(steps["new"]["forecast"]).groups()
    took = sum(workspace.json(f"results/runs/{run}/status.json")["accelerator_s"] for run in steps["old"]["runs"])
    assert starts == "10"  # three pairs of a proof among them
    assert float(hours) == pytest.approx(10 / 4 * took / 3600, rel=0.5)  # one digit


def test_history_compares_each_configuration_at_both_releases(upgrade):
    workspace, steps = upgrade
    assert steps["old"]["history"].empty
    history = steps["new"]["history"].set_index("candidate")
    assert list(history.index) == ["baseline", "max_num_seqs=2", "--no-such-flag"]
    assert set(history["version_before"]) == {OLD} and set(history["version_after"]) == {NEW}
    assert list(history["verdict"][2:]) == ["still fails"]
    assert "--no-such-flag" in history["why"].iloc[2]
    for _, row in history[:2].iterrows():
        assert row["verdict"] in ("better", "worse", "no difference")
        assert row["change_ci95_low_percent"] <= row["change_percent"] <= row["change_ci95_high_percent"]
        assert pd.isna(row["machine_changes"])
        for side in ("before", "after"):
            status = workspace.json(f"results/runs/{row[f'run_id_{side}']}/status.json")
            assert row[f"measured_at_{side}"] >= status["finished_at"] and status["outcome"] == "ok"
            assert row[f"value_{side}"] > 0
    table = pd.read_parquet(workspace.folder / "results/studies/tiny/stages/sequences/table.parquet")  # at OLD again
    found = table.set_index("candidate")["objective_value"].dropna()
    assert history["value_before"].dropna().to_dict() == pytest.approx(found.to_dict())
    # put back, the study asks for the same configurations: the comparison stays
    pd.testing.assert_frame_equal(steps["back"]["history"], steps["new"]["history"])


def test_the_answer_under_each_release_is_kept(upgrade):
    _, steps = upgrade
    assert [len(step["kept"]) for step in steps.values()] == [1, 2, 2]
    (old,), new = steps["old"]["kept"].values(), steps["new"]["kept"]
    assert old in new.values() and old in steps["back"]["kept"].values()
    answers = steps["back"]["answers"]
    assert list(answers["versions"]) == [f"llama.cpp {OLD}", f"llama.cpp {NEW}"]
    assert list(answers["is_current"]) == [True, False]
    assert list(answers["winner_changed"]) == [None, False]
    assert list(steps["new"]["answers"]["is_current"]) == [False, True]


def test_an_archive_after_the_upgrade_holds_with_the_runs_of_both_releases(upgrade):
    workspace, _ = upgrade

    def script(name, *arguments):
        done = workspace.call(sys.executable, f"scripts/{name}.py", *map(str, arguments))
        assert done.returncode == 0, done.stdout

    script("archive", *ARCHIVE_STUDY)
    (archive,) = (workspace.folder / "results/archives").glob("*.zip")
    with zipfile.ZipFile(archive) as file:
        names = {name.split("/")[2] for name in file.namelist() if name.startswith("results/runs/")}
    assert names == set(workspace.runs())
