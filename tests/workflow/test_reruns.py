"""What must rerun, in measure jobs: the table of docs/architecture.md, row by row, with real runs."""

import shutil
import time

import pytest
from workspace import Workspace, tiny_study

from servelab.clients import CLIENTS

THIRD = "2026.9.10809"


def specs(workspace, runs):
    return [workspace.json(f"results/runs/{run}/spec.json") for run in runs]


def test_a_first_run_measures_each_configuration_once(finished):
    """Baseline on three workloads, the old release, two sequences, a bad flag; all stages share the incumbent."""
    assert len(finished.runs()) == 3 + 1 + 2


def test_nothing_changed_measures_nothing(workspace):
    assert workspace.measured_by() == set()


def test_add_a_candidate_measures_one(workspace):
    study = workspace.study()
    study["stages"][1]["candidates"].append({"options": {"max_num_seqs": 3}})
    workspace.write_study(study)
    added = workspace.measured_by()
    assert [spec["options"] for spec in specs(workspace, added)] == [{"max_num_seqs": 3}]


@pytest.mark.slow
def test_change_one_argument_measures_one(workspace):
    study = workspace.study()
    study["stages"][1]["candidates"][0]["arguments"] = {"--threads": 1}
    workspace.write_study(study)
    changed = workspace.measured_by()
    assert [spec["arguments"] for spec in specs(workspace, changed)] == [{"--threads": 1}]


@pytest.mark.slow
def test_bump_an_engines_version_measures_exactly_that_engines_runs(workspace):
    before = workspace.runs()
    study = workspace.study()
    study["engines"]["old"] |= {"version": THIRD, "lock": f"envs/llama.cpp-{THIRD}.lock.txt"}
    workspace.write_study(study)
    bumped = workspace.measured_by()
    assert [spec["engine"]["version"] for spec in specs(workspace, bumped)] == [THIRD]
    assert set(before) < set(workspace.runs())  # the old release's run stays
    workspace.write_study(tiny_study())
    assert workspace.measured_by() == set()  # and rolling back measures nothing


def test_reorder_or_comment_the_study_measures_nothing(workspace):
    study = dict(reversed(workspace.study().items()))
    study["stages"] = [dict(reversed(stage.items())) for stage in study["stages"]]
    study["stages"][1]["candidates"].reverse()
    workspace.write_study(study)
    workspace.edit("config/studies/tiny.yaml", "study: tiny", "# a comment\nstudy: tiny")
    assert workspace.measured_by() == set()


def test_edit_a_chart_a_parser_or_the_report_measures_nothing(workspace):
    report = workspace.folder / "results/studies/tiny/report.html"
    before = report.stat().st_mtime_ns
    for name in ("charts/improvement.py", "parse.py", "report/render.py"):
        with (workspace.folder / "scripts/servelab" / name).open("a") as file:
            file.write("\n# a change\n")
    assert workspace.measured_by() == set()
    assert report.stat().st_mtime_ns > before  # but the report is made anew


@pytest.mark.slow
def test_edit_the_clients_code_measures_nothing_until_its_version_is_raised(workspace):
    for name in ("measure.py", "servelab/measure.py", "servelab/load/sender.py"):
        with (workspace.folder / "scripts" / name).open("a") as file:
            file.write("\n# a change\n")
    assert workspace.measured_by() == set()
    before = set(workspace.runs())
    version = f'version: str = "{CLIENTS.get("servelab").version}"'
    workspace.edit("scripts/servelab/clients/servelab.py", version, 'version: str = "another"')
    assert len(workspace.measured_by()) == len(before)


def test_touch_the_dataset_the_model_and_the_environment_measures_nothing(workspace):
    workspace.touch_results()
    assert workspace.measured_by() == set()


def test_a_fresh_checkout_with_the_results_measures_nothing(finished, tmp_path):
    time.sleep(1.1)  # the checkout's files are newer than every result
    checkout = Workspace.create(tmp_path / "checkout")
    for name in ("runs", "studies", "workloads"):
        shutil.copytree(finished.folder / "results" / name, checkout.folder / "results" / name)
    assert checkout.measured_by() == set()


def test_losing_snakemakes_records_measures_nothing(workspace):
    shutil.rmtree(workspace.folder / ".snakemake")
    assert workspace.measured_by() == set()


def test_another_study_shares_the_runs_of_the_first(workspace):
    workspace.write_study(tiny_study("other"))
    workspace.write("config/config.yaml", "studies: [tiny, other]\n")
    assert workspace.measured_by() == set()
    assert (workspace.folder / "results/studies/other/report.html").exists()


def test_a_lost_run_is_measured_again_and_only_that(workspace):
    lost = min(workspace.runs())
    shutil.rmtree(workspace.folder / "results/runs" / lost)
    assert workspace.measured_by() == {lost}


def test_a_run_that_was_measured_again_elsewhere_makes_its_tables_anew(workspace):
    lost = min(workspace.runs())
    stages = [workspace.json(f"results/studies/tiny/stages/{name}/plan.json") for name in ("engine", "sequences")]
    tables = [workspace.folder / f"results/studies/tiny/stages/{plan['stage']}/table.parquet" for plan in stages]
    asked = [lost in str(plan) for plan in stages]
    before = [table.stat().st_mtime_ns for table in tables]
    shutil.rmtree(workspace.folder / "results/runs" / lost)
    assert workspace.measured_by(f"results/runs/{lost}/manifest.json") == {lost}
    assert workspace.measured_by() == set()
    assert [table.stat().st_mtime_ns > made for table, made in zip(tables, before, strict=True)] == asked


def test_nothing_asks_for_a_complete_run_again(workspace):
    said = workspace.snakemake("--dry-run", "--forceall")
    assert "rule parse_stage:" in said and "rule measure:" not in said
