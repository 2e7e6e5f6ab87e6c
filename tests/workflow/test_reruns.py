"""What is measured again after a change: the table "What reruns" of docs/studies.md, row by row, with real runs."""

import os
import re
import shutil
import time

import pyarrow.parquet as pq
import pytest
from workspace import NEW, Workspace, tiny_study

from servelab.core.seal import faults_of_seal
from servelab.measure.clients import CLIENTS

THIRD = "2026.9.10809"
ANSWER = "results/studies/tiny/recommended.json"
"""All runs are asked for by the stages that it rests on; the charts and the report take as long as all of these."""


def specs(workspace, runs):
    return [workspace.json(f"results/runs/{run}/spec.json") for run in runs]


def test_a_first_run_measures_each_configuration_once(finished):
    """The baseline on two server starts and on two more workloads, the old release, two sequences, a bad flag."""
    assert len(finished.runs()) == 2 + 2 + 1 + 2
    statuses = [finished.json(f"results/runs/{run}/status.json") for run in finished.runs()]
    # the two more workloads are served by one start: as nothing is better, there is nothing to prove
    assert len({status["job_id"] for status in statuses}) == 2 + 1 + 1 + 2


def test_nothing_changed_measures_nothing(workspace):
    assert workspace.measured_by() == set()


def test_a_new_candidate_an_argument_and_an_engines_version_measure_one_run_each(workspace):
    before = workspace.runs()
    study = workspace.study()
    study["stages"][1]["candidates"].append({"options": {"max_num_seqs": 3}})
    workspace.write_study(study)
    assert "certain by now: 1 run" in workspace.snakemake("--dry-run")
    study["stages"][1]["candidates"][0]["arguments"] = {"--batch-size": 256}
    study["engines"]["old"] |= {"version": THIRD, "lock": f"envs/llama.cpp-{THIRD}.lock.txt"}
    workspace.write_study(study)
    measured = specs(workspace, workspace.measured_by(ANSWER))
    assert sorted(spec["engine"]["version"] for spec in measured) == sorted([NEW, NEW, THIRD])
    new = [spec for spec in measured if spec["engine"]["version"] == NEW]
    assert {spec["options"]["max_num_seqs"]: spec["arguments"] for spec in new} == {
        2: {"--batch-size": 256},
        3: {},
    }
    assert set(before) < set(workspace.runs())  # the old release's run stays
    workspace.write_study(tiny_study())
    assert workspace.measured_by(ANSWER) == set()  # and rolling back measures nothing


def test_order_comments_charts_parsers_the_report_and_the_clients_code_measure_nothing(workspace):
    study = dict(reversed(workspace.study().items()))
    study["stages"] = [dict(reversed(stage.items())) for stage in study["stages"]]
    study["stages"][1]["candidates"].reverse()
    workspace.write_study(study)
    workspace.edit("config/studies/tiny.yaml", "study: tiny", "# a comment\nstudy: tiny")
    report = workspace.folder / "results/studies/tiny/report.html"
    before = report.stat().st_mtime_ns
    package = ("report/charts/tried.py", "results/parse.py", "report/render.py", "measure/visits.py")
    for name in ("measure.py", *(f"servelab/{each}" for each in (*package, "measure/load/sender.py"))):
        file = workspace.folder / "scripts" / name
        file.write_text(file.read_text() + "\n# a change\n")
    assert workspace.measured_by() == set()
    assert report.stat().st_mtime_ns > before  # but the report is made anew


def test_another_version_of_the_client_measures_every_run(workspace):
    version = f'version = "{CLIENTS.get("servelab").version}"'
    workspace.edit("scripts/servelab/measure/clients/servelab.py", version, 'version = "another"')
    assert "(0 runs measured)" in workspace.snakemake("--dry-run")


def test_touch_the_dataset_the_model_and_the_environment_measures_nothing(workspace):
    workspace.touch_results()
    assert workspace.measured_by() == set()


def test_a_fresh_checkout_with_the_results_measures_nothing(finished, tmp_path):
    time.sleep(1.1)  # the checkout's files are newer than every result
    checkout = Workspace.create(tmp_path / "checkout")
    for name in ("runs", "studies", "workloads"):
        shutil.copytree(finished.folder / "results" / name, checkout.folder / "results" / name)
    assert checkout.measured_by(ANSWER) == set()


def test_losing_snakemakes_records_measures_nothing(workspace):
    shutil.rmtree(workspace.folder / ".snakemake")
    assert workspace.measured_by() == set()


def test_another_study_shares_the_runs_of_the_first_and_changes_none_of_its_tables(workspace):
    """Chosen as the README chooses `cpu-engines`."""
    table = workspace.folder / "results/studies/tiny/search.parquet"
    before = pq.read_table(table)
    workspace.write_study(tiny_study("cpu-engines"))
    answer = "results/studies/cpu-engines/recommended.json"
    chosen = ("--config", "studies=[cpu-engines,tiny]", "--forcerun", "aggregate", "--")
    assert workspace.measured_by(*chosen, answer, str(table.relative_to(workspace.folder))) == set()
    assert workspace.json(answer)["study"] == "cpu-engines"
    assert pq.read_table(table).equals(before)


def test_broken_runs_are_set_aside_and_measured_again_and_only_these(workspace):
    """Each was silent, or ended in an error, before runs were sealed."""
    runs = workspace.folder / "results/runs"
    sound, swapped, copied, stripped, lost, added, gone = sorted(runs.iterdir())
    shutil.copy2(sound / "requests.parquet", swapped)
    shutil.rmtree(copied)
    shutil.copytree(sound, copied)
    for name in ("manifest.json", "spec.json"):
        (stripped / name).unlink()
    (lost / "status.json").unlink()
    (added / "notes.txt").write_text("mine")
    shutil.rmtree(gone)
    broken = {
        swapped: "requests.parquet: was changed",
        copied: f"status.json: is of run {sound.name}, in the folder of another",
        stripped: "manifest.json: missing (and 1 more)",
        lost: "status.json: missing",
        added: "notes.txt: was added",
    }
    left = {folder.name: contents(folder) for folder in broken}
    said = workspace.snakemake("--dry-run", ANSWER)
    for folder, why in broken.items():
        assert f"run {folder.name} is broken: {why}; it is set aside and measured again" in said
    assert re.search(r"tiny: \d server starts? left if the winners stay", said)
    assert {folder.name: contents(folder) for folder in broken} == left  # a dry-run moves nothing
    assert workspace.measured_by(ANSWER) == {folder.name for folder in (*broken, gone)}
    aside = sorted((runs / "set-aside").iterdir())
    assert {folder.name.split("-")[0]: contents(folder) for folder in aside} == left and len(aside) == len(left)
    assert not any(faults_of_seal(folder) for folder in broken)
    assert "tiny: nothing left to measure" in workspace.snakemake("--dry-run", ANSWER)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_that_was_measured_again_elsewhere_makes_its_tables_anew(workspace):
    lost = min(workspace.runs())
    stages = [workspace.json(f"results/studies/tiny/stages/{name}/plan.json") for name in ("engine", "sequences")]
    tables = [workspace.folder / f"results/studies/tiny/stages/{plan['stage']}/table.parquet" for plan in stages]
    asked = [lost in str(plan) for plan in stages]
    before = [table.stat().st_mtime_ns for table in tables]
    shutil.rmtree(workspace.folder / "results/runs" / lost)
    assert workspace.measured_by(f"results/runs/{lost}/manifest.json") == {lost}
    assert workspace.measured_by(*(str(table.relative_to(workspace.folder)) for table in tables)) == set()
    assert [table.stat().st_mtime_ns > made for table, made in zip(tables, before, strict=True)] == asked


def test_nothing_asks_for_a_complete_run_again(workspace):
    said = workspace.snakemake("--dry-run", "--forceall")
    assert "rule parse_stage:" in said and "rule measure:" not in said
    assert "tiny: nothing left to measure" in said


@pytest.mark.slow
def test_an_edit_is_seen_though_its_file_is_older_than_the_results(workspace):
    """As one that was copied with its old time, or edited after the clock was set back."""
    workspace.write_study(workspace.study() | {"title": "Another"})
    parser = workspace.folder / "scripts/servelab/results/parse.py"
    parser.write_text(parser.read_text() + "\n# a change\n")
    for file in ("config/studies/tiny.yaml", "scripts/servelab/results/parse.py"):
        os.utime(workspace.folder / file, (0, 0))
    said = workspace.snakemake("--dry-run")
    assert re.search(r"^decide_stage +3$", said, re.MULTILINE)
    assert re.search(r"^parse_stage +[1-9]", said, re.MULTILINE)
    assert not re.search(r"^measure +[1-9]", said, re.MULTILINE) and "nothing left to measure" in said
