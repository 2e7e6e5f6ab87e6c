"""The report of the sample study: what it says, that it stands alone, and its errors."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import report
import sample_curves
import sample_history
import sample_study
from made_place import AFTER, put_places, upgrade

from servelab.core.cli import RuleJob
from servelab.core.errors import ServelabError
from servelab.core.figure_text import MARKS, MARKS_KEY, PLACES_KEY, PLACES_MARK
from servelab.metrics.tables.io import read_table, read_tables
from servelab.report.answer_section import only_in
from servelab.report.charts import CHARTS
from servelab.report.charts.curves import with_limits
from servelab.report.charts.write import write_chart
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.render import report_content, report_html
from servelab.search.decision import Decision
from servelab.search.recommendation_text import render_recommendation
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary

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
        self.marks: list[str] = []
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
        if self.open and self.open[-1] == "mark":
            self.marks.append(data)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of the rendered study; curves are drawn besides, as they name runs that the sample does not have."""
    folder = sample_study.write(tmp_path_factory.mktemp("project") / "results")
    made = {"curves": sample_curves.curves().head(0), "device_series": sample_study.device_series()}
    for name, rows in made.items():
        rows.to_parquet(folder.parent / f"{name}.parquet")
    found = {name: str(folder / f"{name}.parquet") for name in ("improvements", "metrics", "checks", "search")}
    found |= {name: str(folder.parent / f"{name}.parquet") for name in made}
    found |= {
        "study": str(folder / "study.json"),
        "stages": [str(folder / "stages" / stage / "table.parquet") for stage in sample_study.STAGES],
        "decisions": [str(folder / "stages" / stage / "decision.json") for stage in sample_study.TITLES],
        "recommended": str(folder / "recommended.json"),
    }
    output = {"markdown": "report.md", "html": "report.html", "tables": "tables", "charts": "charts"}
    output = {name: str(folder / file) for name, file in output.items()}
    files = {"input": found, "output": output, "wildcards": {"search": f"studies/{folder.name}"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parents[2])
        report.render_report(RuleJob([f"files={json.dumps(files)}"]))
    for chart in CHARTS:
        if chart.reads == "curves":
            rows = with_limits(sample_curves.curves(), StudySummary.read(folder / "study.json"))
            write_chart(chart, rows, {kind: folder / "charts" / f"{chart.name}.{kind}" for kind in ("svg", "json")})
    return folder


def content(folder: Path, *, recommended=None, table=None, improvements=None, checks=None, **others):
    stages = [folder / "stages" / stage for stage in sample_study.STAGES]
    decisions = [stage / "decision.json" for stage in stages if (stage / "decision.json").exists()]
    tables = {
        name: read_tables([folder / f"{name}.parquet"]) for name in ("improvements", "metrics", "checks", "search")
    }
    given = {"improvements": improvements, "checks": checks, **others}
    tables |= {name: rows for name, rows in given.items() if rows is not None}
    tables["stages"] = read_tables([stage / "table.parquet" for stage in stages]) if table is None else table
    found = report_content(
        StudySummary.read(folder / "study.json"),
        Recommended.model_validate(sample_study.recommended() | (recommended or {})),
        [Decision.read(path) for path in decisions],
        MeasuredRuns(folder.parents[1] / "runs"),
        tables,
        drawn={path.stem for path in (folder / "charts").glob("*.svg")},
    )
    return found | {"tables": ["stages", "metrics"]}


def plain(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").split())


@pytest.fixture(scope="module")
def page(study):
    return Page(report_html(content(study), study / "charts"))


SAID = [
    "Qwen3-32B on eight NPUs",
    "Use this command: 256 → 567 total tokens/s per accelerator (+121.6 %, sure between +119.7 and +123.7 %), better "
    "at 46 to 256 in flight, worse at 1 to 38 in flight, answers not checked.",
    "Qwen/Qwen3-32B on 4 × Ascend 910B, with sglang 0.5.6",
    "better, by 3 pairs of server starts",
    "8.2 h of accelerator time (deciding load 50 %, other loads 10 %, start-up 30 %, idle 10 %); "
    "7 candidates (5 tried, 1 failed, 1 refused), 36 runs in all",
    "Instead of: --max-num-seqs 0",
    "The baseline used 8 of a node's 8 accelerators, the optimized one 4.",
    "2,048 → 4,538 total tokens/s, extrapolated (× 2)",
    "within noise: 95 % −1.5 to +2.5 %",
    "a single one has none",
    "3 starts, 9 rounds, 9,000 requests",
    "5 runs, 92 min of accelerator time",
    "applies if model is draft; the incumbent's is base",
    "refused before any run: engine sglang has no option pipeline",
    "8 × name Ascend 910B, driver 24.1, memory 64.0 GiB",
    "load (settle_requests 0, rounds 3, request_rate inf, arrivals poisson, burstiness 1.0, ramp_up_s 0.0), "
    "slos (ttft_ms 500.0, tpot_ms 50.0)",
    f"git checkout 0123456789abcdef0123456789abcdef01234567 servelab run {sample_study.STUDY}",
    "ShareGPT, 1,000 prompts, within TTFT 500 ms a request, TPOT 50.0 ms a request",
    "30 checks ran on 15 runs: 26 passed, 1 found a run invalid, 3 found a run suspect. 15 did not apply.",
    "round 2: total_tokens_per_s 1207, the others' median is 2281",
    "Look into zero_itl.",
    "Better: the gain holds: the search promised +128.4 %, 3 pairs of fresh starts found +121.6 %.",
    "Search: Total tokens/s per accelerator",
    "on 2 starts",
    "They are no claim.",
    "† suspect, ‡ invalid: see the report's checks",
    sample_study.winner_map()["text"],
    sample_study.COMMAND,
    sample_study.OUT_OF_MEMORY,
]


def test_the_report_says(page):
    assert [text for text in SAID if plain(text) not in plain(page.text)] == []


def test_of_two_objectives_each_has_its_command(study):
    second = sample_study.recommended() | {"objective": "ttft_ms.p99", "per": "deployment", "command": "serve --fast"}
    front = [{"candidate": "between", "run_id": "r", "value": 231.0, "second_value": 87.6}]
    found = content(study, recommended={"second": second | {"launch_command": None}, "front": front})
    said = plain(Page(report_html(found, study / "charts")).text)
    assert "Best in Total tokens/s per accelerator: Use this command: 256" in said
    assert "Best in TTFT (ms) p99: Use the second command: 256" in said and "TTFT (ms) p99: serve --fast" in said
    assert "TTFT (ms) p99 between 231 87.6" in said
    printed = render_recommendation(found["recommended"], Path("report.html"))
    assert "Best in TTFT (ms) p99:\n    serve --fast" in printed and "TTFT (ms) p99:\nserve --fast" in found["card"]


def test_what_changed_against_the_baseline_is_marked_in_each_form(study, page):
    assert page.marks.count("--tensor-parallel-size") == 2 and "Qwen/Qwen3-32B" not in page.marks  # bare and Slurm
    assert content(study)["forms"][0].text == sample_study.COMMAND
    assert only_in("A=1 serve m -tp 2 --fast --x 1", "A=2 serve m -tp 2 --x 3") == "A=1  --fast  --x 1"


ANSWERS = {
    "unsure": (
        {"proof": "cannot tell"},
        "Cannot tell, so keep the baseline: the proof found +1.6 % (between −2.4 and +5.8 %) and could have seen a "
        "change of 4.1 % or more.",
    ),
    "keep": ({}, "Keep the baseline: the search found no candidate that is better beyond noise and margin."),
    "keep, worse": (
        {"proof": "worse"},
        "Keep the baseline: what the search proposed is worse in the proof, +1.6 % (between −2.4 and +5.8 %).",
    ),
    "keep, answers": (
        {"changed_answers": [{"stage": "s", "candidate": "fp8", "change_percent": 58.3, "why": "12 of 60 lost"}]},
        "Keep the baseline: fp8 is +58.3 % in the search, but changes answers.",
    ),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_answer_is_one_sentence(study, kind):
    """A baseline that is kept looks as important as a gain; what is not proved is no gain."""
    changes, said = ANSWERS[kind]
    kept = {"changed": False, "improvements": [], "winner_maps": [], "proof": None, "evidence": "nothing to prove"}
    kept |= {"run_id": sample_study.recommended()["baseline_run_id"]} | changes
    if verdict := changes.get("proof"):
        figures = {"change_percent": 1.6, "change_ci95_low_percent": -2.4, "change_ci95_high_percent": 5.8}
        figures |= {"smallest_change_percent": 4.1, "verdict": verdict}
        workloads = [each | figures for each in sample_study.proof()["workloads"]]
        kept["proof"] = sample_study.proof(workloads=workloads, proposed_command="serve --fast '<x>'", **figures)
    result = content(study, recommended=kept)
    html = report_html(result, study / "charts")
    assert plain(result["answer"].text) == said and f'<header class="{kind.partition(",")[0]}">' in html
    text = plain(Page(html).text)
    assert said in text and said in plain(result["card"]) and "Baseline against optimized" not in text
    assert ("Proposed by the search, not recommended: serve --fast '<x>'" in text) is ("proof" in changes)
    assert "<mark>" not in html and ("fp8 changes answers: 12 of 60 lost" in text) is ("answers" in kind)
    if result["proof"]:
        assert not any(cell.is_good for row in result["proof"]["workloads"].rows for cell in row)


def test_every_figure_of_a_run_that_is_not_valid_is_marked_and_no_other(study):
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    marks = dict(zip(table["run_id"], table["validity"].map(MARKS), strict=True))
    result = content(study)
    tables = [result["objective_table"], result["other_metrics"], result["searched"]]
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


def test_html_stands_alone(page):
    assert not {"link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("script") == 3 + len(CHARTS.names())  # its own, Vega, and what draws each chart
    assert page.tags.count("svg") == len(CHARTS.names())
    assert len(page.ids) == len(set(page.ids))
    own = ("#", "tables/", "charts/")
    assert all(link.startswith(("../../", *own)) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_every_link_leads_to_a_file_of_the_results(page, study):
    runs = {Path(target).name for target in page.links if "/runs/" in target}
    assert {sample_study.recommended()[side] for side in ("run_id", "baseline_run_id")} <= runs
    for target in page.links:
        made_elsewhere = target.startswith(("#", "tables/", "charts/", "../../index")) or target.endswith("server.log")
        if "workloads" not in target and not made_elsewhere:
            assert (study / target).exists(), target


def test_pairs_of_the_proof_are_listed_with_their_ratios(study):
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    position = table.index[(table["stage"] == "confirm") & (table["workload"] == "sharegpt")][1]
    table.at[position, "start_jobs"] = [*table.at[position, "start_jobs"][:2], "another"]
    pairs = content(study, table=table)["proof"]["pairs"]
    sides = [f"{side} (Total tokens/s per accelerator)" for side in ("Baseline", "Proposed")]
    assert pairs.columns == ["Pair", *sides, "Ratio"]
    assert len(pairs.rows) == 9
    first, second, third = pairs.rows[:3]
    assert [cell.text for cell in second] == ["ShareGPT, 1,000 prompts", "256", "567", "2.216"]
    assert [row[0].note for row in (first, second, third)] == ["proof-0", "proof-1", "proof-2"]
    assert [row[3].note for row in (first, second, third)] == ["", "", "does not count"]
    rows = table[(table["stage"] == "confirm") & (table["workload"] == "sharegpt")].to_dict("records")
    assert [second[1].run_id, second[2].run_id] == [row["run_ids"][1] for row in rows]


def test_runs_of_unequal_places_are_marked(study):
    """The winner's runs were measured after a driver upgrade: at the top, in the proof and beside each change."""
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    table = put_places(table, {"winner": [AFTER], "sglang": [AFTER]})
    improved = read_tables([study / "improvements.parquet"]).assign(unequal_places=upgrade(3, 3))
    workloads = [each | {"unequal_places": upgrade(3, 3)} for each in sample_study.proof()["workloads"]]
    proof = sample_study.proof(workloads=workloads, unequal_places=upgrade(3, 3))
    result = content(study, table=table, improvements=improved, recommended={"proof": proof})
    first, second = result["stages"][:2]
    result["stages"][0] = replace(first, warning=upgrade(2, 1))
    assert second.warning == "" and f"+121.6 %{PLACES_MARK}" in plain(result["answer"].text)
    text = plain(Page(report_html(result, study / "charts")).text)
    assert f"Not measured at one place: {upgrade(3, 3)}" in text
    assert f"Not measured at one place: {upgrade(2, 1)}." in text and PLACES_KEY in text
    assert {row[3].mark for row in result["proof"]["workloads"].rows} == {PLACES_MARK}
    changes = [row[3] for row in result["objective_table"].rows]
    assert all(cell.mark.endswith(PLACES_MARK) and upgrade(3, 3) in cell.mark_why for cell in changes)


def test_a_recorded_study_says_that_it_is_not_proved(study):
    result = content(study, recommended={"proof": None, "evidence": "from logs: not proved"})
    assert "from logs: not proved" in result["answer"].text and result["proof"] == {}
    assert result["facts"]["Proof"] == "from logs: not proved"


def test_every_table_of_figures_has_n_means_and_intervals(study):
    said = content(study)
    tables = [said["objective_table"], said["other_metrics"], said["searched"]]
    figures = single_rounds = 0
    for table in tables:
        assert table.columns[-1] == "n"
        named = ("Workload", "Metric", "Candidate", "Verdict")
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
                    is_change = cell.text.endswith("%")
                    interval = r"[+−].+ % .*95 % [+−].+ to [+−].+ %" if is_change else r"[\d.,]+ ± [\d.,]+"
                    assert re.match(interval, plain(f"{cell.text} {cell.note}")), (column, cell)
    assert figures > 40 and single_rounds > 2


def test_missing_chart_decision_and_run_are_named(study, tmp_path):
    with pytest.raises(ServelabError, match=r"proof\.svg: No such file.*render_report"):
        report_html(content(study), tmp_path)
    (tmp_path / "decision.json").write_text(json.dumps(sample_study.decision("engine") | {"applies": "perhaps"}))
    with pytest.raises(ServelabError, match=r"decision\.json: applies: "):
        Decision.read(tmp_path / "decision.json")
    with pytest.raises(ServelabError, match=r"no table\.parquet was given for stage parallelism, batching"):
        content(study, table=read_tables([study / "stages/engine/table.parquet"]))
    decision = study / "stages/speculative/decision.json"
    kept = decision.rename(tmp_path / "kept.json")
    with pytest.raises(ServelabError, match=r"no decision\.json was given for stage speculative of study npu-qwen"):
        content(study)
    kept.rename(decision)
    table = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES])
    table["run_ids"] = [["0" * 20]] * len(table)
    with pytest.raises(ServelabError, match=r"00000/\w+\.json: No such file.*; restore it"):
        content(study, table=table)


def test_the_rule_writes_pages_tables_and_charts(study):
    assert (study / "report.md").read_text() == content(study)["card"]
    drawn = {path.stem for path in (study / "charts").glob("*.png")}
    assert "proof" in drawn and drawn <= set(CHARTS.names())
    named = ("stages", "metrics", "search", "improvements", "checks", "curves", "device_series")
    assert {path.name for path in (study / "tables").iterdir()} == {
        f"{name}.{kind}" for name in named for kind in ("csv", "parquet")
    }


VERSIONS_SAID = [
    "sglang 0.5.5 → 0.5.6: better 1, no difference 1, new failure 1, fixed failure 1.",
    "284 ± 3",
    "+5.3 %",
    "the machine differs too: kernel 5.10.0 → 6.1.0",
    "unrecognized arguments: --old | flag",
    "vllm 0.32.0, sglang 0.5.6",
    "as the study is now",
    "not the winner of the row before: sglang serve --option tensor_parallel_size=4",
    "+121.6 %",
    MARKS_KEY,
]


def test_versions_have_a_section_with_gains_failures_and_the_answers(study):
    result = content(study, history=sample_history.history(), answers=sample_history.answers())
    page = Page(report_html(result, study / "charts"))
    text = plain(page.text)
    assert [said for said in VERSIONS_SAID if said not in text] == []
    assert f"../../runs/{sample_study.run_id('--old-flag=1 0.5.5')}/" in page.links


def test_of_a_large_table_the_best_rows_are_shown(study):
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
    stage = result["searched"]
    names = [row[0].text for row in stage.shown]
    assert names[:3] == ["baseline", "sglang", "c299"] and "c150" not in names and "--max-num-seqs=512" in names


def test_the_card_says_the_answer_with_what_it_rests_on(study):
    text = plain(content(study)["card"])
    assert text.startswith("**Use this command: 256 → 567 total tokens/s per accelerator (+121.6 %, sure between")
    said = ("4 × Ascend 910B", "Answers: not measured.", "- better, by 3 pairs", f"```bash {sample_study.COMMAND} ```")
    assert [wanted for wanted in said if wanted not in text] == []


@pytest.mark.parametrize(("file", "read"), [("table.parquet", read_table), ("decision.json", Decision.read)])
def test_a_file_of_another_stage_is_refused(study, tmp_path, file, read):
    (there := tmp_path / "stages/batching" / file).parent.mkdir(parents=True)
    there.write_bytes((study / "stages/engine" / file).read_bytes())
    with pytest.raises(ServelabError, match=rf"batching/{file}: is of stage engine; restore it"):
        read(there)
