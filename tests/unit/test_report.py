"""The report of the sample study: what it says, that it stands alone, and its errors."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import sample_history
import sample_study
from markdown_it import MarkdownIt

from servelab.chart_files import read_tables, study_charts, write_chart
from servelab.errors import ServelabError
from servelab.figures import MARKS, MARKS_KEY
from servelab.report.inputs import Decision, Recommended, Study, read
from servelab.report.provenance import MeasuredRuns
from servelab.report.render import render_html, render_markdown, report_content
from servelab.report.table import Cell, Measured, Table
from servelab.report.tables import frame, tables_of

SCRIPT = Path(__file__).parents[2] / "scripts" / "render_report.py"
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Collects what the tests ask of a page; fails on tags that do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = sample_study.write(tmp_path_factory.mktemp("results"))
    charts = study_charts(
        read(folder / "study.json", Study),
        read_tables([folder / "stages" / stage / "table.parquet" for stage in sample_study.STAGES]),
        [read(folder / "stages" / stage / "decision.json", Decision) for stage in sample_study.TITLES],
        read_tables([folder / "improvements.parquet"]),
        sample_history.history(),
        sample_study.of_runs(),
    )
    for stem, chart, rows in charts:
        write_chart(chart, rows, {"svg": folder / "charts" / f"{stem}.svg"})
    return folder


def content(folder: Path, *, recommended=None, table=None, improvements=None, checks=None, **others):
    stages = [folder / "stages" / stage for stage in sample_study.STAGES]
    decisions = [stage / "decision.json" for stage in stages if (stage / "decision.json").exists()]
    return report_content(
        read(folder / "study.json", Study),
        Recommended.model_validate(sample_study.recommended() | (recommended or {})),
        read_tables([stage / "table.parquet" for stage in stages]) if table is None else table,
        [read(path, Decision) for path in decisions],
        read_tables([folder / "improvements.parquet"]) if improvements is None else improvements,
        read_tables([folder / "metrics.parquet"]),
        read_tables([folder / "checks.parquet"]) if checks is None else checks,
        MeasuredRuns(folder.parents[1] / "runs", folder.name),
        search=read_tables([folder / "search.parquet"]),
        **{"drawn": {path.stem for path in (folder / "charts").glob("*.svg")}} | others,
    )


def plain(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").split())


@pytest.fixture(scope="module")
def page(study):
    return Page(render_html(content(study), study / "charts"))


@pytest.fixture(scope="module")
def markdown(study):
    return render_markdown(content(study))


SAID = [
    "Qwen3-32B on eight NPUs",
    "+121.6 % ± 2.0 %",
    "Total tokens/s per accelerator on ShareGPT, 1,000 prompts, against the baseline",
    "(95 % interval +119.7 to +123.7 %)",
    "The baseline used 8 of 8 accelerators of a node, the optimized configuration 4.",
    "2,048 → 4,538 total tokens/s, extrapolated (× 2)",
    "within noise: 95 % interval −1.5 to +2.5 %",
    "no interval: a single round, or rounds too far apart",
    "3 rounds, 3,000 requests",
    "3 runs, 92 min of accelerator time",
    "applies where model is draft; the incumbent's is base",
    "17 candidates in 5 stages",
    "refused before any run: engine sglang has no option pipeline",
    "8 × driver 24.1, memory 64.0 GiB, name Ascend 910B",
    "ttft_ms 500.0, tpot_ms 50.0",
    "git checkout 0123456789abcdef0123456789abcdef01234567",
    "30 checks were made on 15 runs: 26 passed, 1 found a run invalid, 3 found a run suspect. 15 had nothing to look",
    "round 2: total_tokens_per_s 1207, the others' median is 2281",
    "Look into zero_itl.",
    "† suspect, ‡ invalid: see the report's checks",
]


@pytest.mark.parametrize("text", SAID)
def test_both_reports_say(text, page, markdown):
    assert text in plain(page.text)
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    assert text in plain(Page(rendered).text)


def test_command_and_failure_stand_as_they_are(page, markdown):
    assert sample_study.recommended()["command"] in page.text
    assert sample_study.recommended()["command"] in markdown
    assert sample_study.OUT_OF_MEMORY in page.text
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    assert sample_study.OUT_OF_MEMORY in Page(rendered).text


def test_every_figure_of_a_run_that_is_not_valid_is_marked_and_no_other(study):
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    marks = dict(zip(table["run_id"], table["validity"].map(MARKS), strict=True))
    result = content(study)
    tables = [result["objective_table"], result["other_metrics"], *(each.table for each in result["stages"])]
    cells = [cell for each in tables if each for row in each.rows for cell in row]
    for cell in cells:
        wanted = {marks[run_id] for run_id in (cell.run_id, cell.against) if isinstance(marks.get(run_id), str)}
        assert {cell.mark} - {""} == wanted
        assert bool(cell.mark_why) == bool(wanted)
    assert {cell.mark for cell in cells} == {"", *MARKS.values()}
    changes = {row[0].note: row[3].mark for row in result["objective_table"].rows}
    assert changes == {"sharegpt": "", "short-128x4": "†", "very-long-32000x100": "†"}
    baselines = {row[0].note: row[1].mark for row in result["objective_table"].rows}
    assert baselines == {"sharegpt": "", "short-128x4": "†", "very-long-32000x100": ""}


def test_marks_are_in_both_texts(study, page, markdown):
    for text in (page.text, Page(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)).text):
        assert re.search(r"2,500 ± 37 ?‡", plain(text)) and re.search(r"570 ± 9 ?†", plain(text))


def test_a_suspect_headline_is_marked(study):
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    table.loc[table["run_id"] == sample_study.recommended()["baseline_run_id"], "validity"] = "suspect"
    result = content(study, table=table)
    assert "+121.6 % ± 2.0 %†" in plain(Page(render_html(result, study / "charts")).text)
    assert "+121.6 % ± 2.0 %†" in plain(render_markdown(result))


def test_valid_runs_have_no_key_of_marks(study):
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    table["validity"] = table["validity"].where(table["validity"].isna(), "ok")
    checks = read_tables([study / "checks.parquet"]).assign(level="ok", action=None)
    result = content(study, table=table, checks=checks)
    assert not result["marks_key"] and not result["headline_mark"] and not result["checks"].rows
    assert "45 checks were made on 15 runs: 45 passed." in render_markdown(result)


def test_checks_of_a_foreign_run_are_refused(study):
    checks = read_tables([study / "checks.parquet"]).assign(run_id="f" * 20)
    with pytest.raises(ServelabError, match="fff, which is in no stage's table"):
        content(study, checks=checks)


def test_html_stands_alone(page):
    assert not {"link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("script") == 1
    assert page.tags.count("svg") == 7 + 3  # study charts, and one for each stage that applies
    assert len(page.ids) == len(set(page.ids))
    own = ("#", "tables/", "charts/")
    assert all(link.startswith(("../../", *own)) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_every_link_leads_to_a_file_of_the_results(page, markdown, study):
    targets = set(page.links) | set(re.findall(r"\]\(([^)]+)\)", markdown))
    runs = {target for target in targets if "/runs/" in target}
    assert {sample_study.recommended()["run_id"], sample_study.recommended()["baseline_run_id"]} <= {
        Path(target).name for target in runs
    }
    for target in targets:
        made_elsewhere = target.startswith(("#", "tables/", "charts/", "../../index")) or target.endswith("server.log")
        if "workloads" not in target and not made_elsewhere:
            assert (study / target).exists(), target


def test_no_change_keeps_the_baseline(study):
    improvements = read_tables([study / "improvements.parquet"]).iloc[:0]
    baseline = sample_study.recommended()["baseline_run_id"]
    result = content(study, recommended={"changed": False, "run_id": baseline}, improvements=improvements)
    text = plain(Page(render_html(result, study / "charts")).text)
    assert "No candidate beat the baseline beyond noise and margin: keep the baseline." in text
    assert "Baseline against optimized Workload" not in text
    assert "keep the baseline" in render_markdown(result)


def test_winner_that_failed_on_a_workload_is_shown(study):
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    failed = (table["stage"] == "comparison") & (table["workload"] == "short-128x4") & (table["candidate"] == "winner")
    table.loc[failed, ["outcome", "reason"]] = ["failed", "requests_failed"]
    improvements = read_tables([study / "improvements.parquet"])
    improvements = improvements[improvements["workload"] != "short-128x4"]
    recommended = sample_study.recommended()
    recommended["improvements"][1]["failed"] = "winner: requests_failed: 3 of 3,000 requests failed"
    result = content(study, recommended=recommended, table=table, improvements=improvements)
    row = next(row for row in result["objective_table"].rows if row[0].note == "short-128x4")
    assert [plain(cell.text) for cell in row[1:4]] == ["12,493 ± 187", "failed", "–"]
    assert row[3].note == "winner: requests_failed: 3 of 3,000 requests failed"


def test_every_table_of_figures_has_n_means_and_intervals(study):
    said = content(study)
    tables = [said["objective_table"], said["other_metrics"], *(stage.table for stage in said["stages"] if stage.table)]
    assert len(tables) == 2 + 3
    figures = single_rounds = 0
    for table in tables:
        assert table.columns[-1] == "n"
        named = ("Workload", "Metric", "Candidate", "Engine", "Accelerators")
        for row in table.rows:
            counts = plain(row[-1].text)
            for column, cell in zip(table.columns, row, strict=True):
                if column in (*named, "n") or cell.text in ("–", "failed"):
                    continue
                assert re.match("[1-9]", counts), (row[0], counts)
                if counts == "1 round, 1,000 requests":
                    single_rounds += 1
                    assert "±" not in cell.text
                else:
                    figures += 1
                    assert re.match(r"[+−]?[\d.,]+( %)? ± [\d.,]+", plain(cell.text)), (column, cell)
    assert figures > 40 and single_rounds > 4


def test_a_log_that_does_not_say_how_many_requests_it_is_of():
    rows = [row | {"n": None} for row in sample_study.metrics() if row["metric"] == "e2el_ms"]
    measured = Measured(pd.DataFrame(rows))
    assert measured.counts([rows[0]["run_id"]]).text == "3 rounds"
    assert plain(measured.cell(rows[0]["run_id"], "e2el_ms").text) == "10,254 ± 154"
    assert measured.counts(["never measured"]).text == "–"


def test_bases_that_tell_the_same_are_left_out(study):
    improvements = read_tables([study / "improvements.parquet"])
    improvements = improvements.assign(factor=1.0, baseline_factor=1.0, extrapolated=False)
    columns = content(study, improvements=improvements)["objective_table"].columns
    assert columns == ["Workload", "Baseline (Total tokens/s)", "Optimized (Total tokens/s)", "Change", "n"]


def test_control_characters_of_logs_are_dropped(study):
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    table.loc[table["reason"] == "out_of_memory", "message"] = "\x1b[31mno memory\x1b[0m\x00 <b>|"
    result = content(study, table=table)
    page = render_html(result, study / "charts")
    assert "no memory &lt;b&gt;|" in page
    assert "\x1b" not in page + render_markdown(result)


def test_missing_chart_decision_and_run_are_named(study, tmp_path):
    with pytest.raises(ServelabError, match=r"improvement\.svg: No such file.*plot_chart"):
        render_html(content(study), tmp_path)
    (tmp_path / "decision.json").write_text(json.dumps(sample_study.decision("engine") | {"applies": "perhaps"}))
    with pytest.raises(ServelabError, match=r"decision\.json: applies: "):
        read(tmp_path / "decision.json", Decision)
    with pytest.raises(
        ServelabError, match=r"no table\.parquet was given for stage parallelism, batching, speculative"
    ):
        content(study, table=read_tables([study / "stages/engine/table.parquet"]))
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    table["run_id"] = "0" * 20
    with pytest.raises(ServelabError, match=r"00000/spec\.json: No such file"):
        content(study, table=table)


def test_command_line(study, tmp_path):
    stages = [str(study / "stages" / stage / "table.parquet") for stage in sample_study.STAGES]
    decisions = [str(study / "stages" / stage / "decision.json") for stage in sample_study.TITLES]
    command = [sys.executable, str(SCRIPT), "--study", str(study / "study.json"), "--stages", *stages]
    command += ["--improvements", str(study / "improvements.parquet"), "--metrics", str(study / "metrics.parquet")]
    command += ["--checks", str(study / "checks.parquet")]
    command += ["--recommended", str(study / "recommended.json"), "--runs", str(study.parents[1] / "runs")]
    command += ["--search", str(study / "search.parquet"), "--output-tables", str(tmp_path / "tables")]
    command += ["--charts-dir", str(study / "charts")]
    command += ["--output-md", str(tmp_path / "report.md"), "--output-html", str(tmp_path / "report.html")]
    subprocess.run([*command, "--decisions", *decisions], check=True)
    said = content(study)
    assert (tmp_path / "report.md").read_text() == render_markdown(said)
    named = {table.name for table in tables_of(said)} | {"stages", "metrics", "search"}
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {
        f"{name}.{kind}" for name in named for kind in ("csv", "parquet")
    }
    wrong = subprocess.run([*command, "--decisions", *decisions[:-1]], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert wrong.stderr == "error: no decision.json was given for stage speculative of study npu-qwen\n"


def test_recorded_study_of_the_same_name_stands_beside_the_live_one(study):
    own = read_tables([study / "improvements.parquet"])
    recorded = own[own["workload"] == "sharegpt"].assign(baseline_value=1000.0, value=1500.0, change_percent=50.0)
    text = plain(render_markdown(content(study, beside=recorded)))
    head, _, section = text.partition("## Measured and recorded side by side")
    assert head and "Baseline, recorded (Total tokens/s)" in section
    sharegpt = next(row for row in section.split(" | | ") if "ShareGPT" in row)
    assert all(figure in sharegpt for figure in ("2,048", "1,000", "1,500", "+50.0 %")), sharegpt
    assert "side by side" not in render_markdown(content(study))


VERSIONS_SAID = [
    "sglang 0.5.5 → 0.5.6: better 1, no difference 1, new failure 1, fixed failure 1.",
    "284 ± 3",
    "+5.3 % ± 1.0 %",
    "the machine differs too: kernel 5.10.0 → 6.1.0",
    "unrecognized arguments: --old | flag",
    "vllm 0.32.0, sglang 0.5.6",
    "as the study is now",
    "another winner than in the row before: sglang serve --option tensor_parallel_size=4",
    "+121.6 % ± 2.0 %",
    MARKS_KEY,
]


def test_versions_have_a_section_with_gains_failures_and_the_answers(study):
    result = content(study, history=sample_history.history(), answers=sample_history.answers())
    page = Page(render_html(result, study / "charts"))
    text = plain(page.text)
    assert [said for said in VERSIONS_SAID if said not in text] == []
    assert page.tags.count("svg") == 7 + 3 + 1
    assert f"../../runs/{sample_study.run_id('--old-flag=1 0.5.5')}/" in page.links
    shown = plain(MarkdownIt("commonmark").enable("table").render(render_markdown(result)))
    assert "Versions" in shown and "charts/version_changes.svg" in shown


def test_versions_have_no_section_where_one_was_measured(study):
    result = content(study, history=sample_history.history().iloc[:0], answers=sample_history.answers().iloc[1:])
    assert "Versions" not in render_html(result, study / "charts")
    assert "Versions" not in render_markdown(result)


def test_an_answer_under_new_versions_is_shown_though_no_configuration_was_measured_twice(study):
    result = content(study, history=sample_history.history().iloc[:0], answers=sample_history.answers())
    text = plain(Page(render_html(result, study / "charts")).text)
    assert "No configuration was measured at two versions of its engine." in text
    assert "The answer under each set of versions" in text


def test_every_table_has_its_files_with_numbers_texts_and_runs(study):
    said = content(study)
    tables = {table.name: table for table in tables_of(said)}
    assert {"objective", "other-metrics", "front", "stage-engine", "stage-parallelism-failures", "checks"} <= set(
        tables
    )
    objective = frame(tables["objective"])
    row = objective.iloc[0]
    assert row["Optimized (Total tokens/s)"] == pytest.approx(2048 * 1.108)
    assert row["Optimized (Total tokens/s), as shown"] == "2,269 ± 34"
    assert row["Optimized (Total tokens/s), run"] == sample_study.recommended()["run_id"]
    assert row["Per node, note"] == "2,048 → 4,538 total tokens/s, extrapolated (× 2)"
    page = Page(render_html(said, study / "charts"))
    linked = {link for link in page.links if link.startswith("tables/")}
    shown = {name for name, table in tables.items() if table.rows}
    assert {f"tables/{name}.{kind}" for name in shown for kind in ("csv", "parquet")} <= linked


def test_two_tables_of_one_name_are_refused():
    table = Table(["A"], [[Cell("1")]], name="same")
    with pytest.raises(ServelabError, match="two tables of the report are named same"):
        list(tables_of({"one": table, "other": [table]}))


def test_of_a_large_table_the_best_rows_are_shown_and_the_files_have_all(study):
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    template = table[(table["stage"] == "engine") & (table["position"] == 1)].iloc[0]
    more = pd.DataFrame(
        [
            template.to_dict()
            | {"position": 10 + number, "candidate": f"c{number}", "run_id": sample_study.run_id("engine sglang None")}
            | {"objective_value": 100.0 + number}
            for number in range(300)
        ]
    )
    result = content(study, table=pd.concat([table, more], ignore_index=True))
    stage = result["stages"][0].table
    assert (len(stage.rows), len(stage.shown)) == (303, 100)
    assert [row[0].text for row in stage.shown[:3]] == ["baseline", "sglang", "c299"]
    page = plain(Page(render_html(result, study / "charts")).text)
    assert "100 of 303 rows; all of them: CSV Parquet" in page and "c150" not in page.partition("What the search")[0]


def test_all_forms_of_the_command_are_in_both_reports(page, markdown):
    for text in ("docker run --rm", "#SBATCH --gres=npu:4", "huawei.com/Ascend910: 4", "PLACEHOLDER"):
        assert text in page.text and text in markdown
