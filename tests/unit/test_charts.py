"""Every chart, on the tables of the sample study and on empty ones."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import sample_curves
import sample_history
import sample_study

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.yaml_file import MARKS, MARKS_KEY
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_tables
from servelab.report.charts import CHARTS
from servelab.report.charts.curves import LIMIT_COLUMNS, with_limits
from servelab.report.charts.write import add_decisions, add_sides, select, write_chart
from servelab.report.improvement_tables import front_table
from servelab.report.page import ShownMeasurement
from servelab.search.decision import Decision
from servelab.study.project import StudySummary

SCRIPT = Path(__file__).parents[2] / "scripts" / "plot_charts.py"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return sample_study.write(tmp_path_factory.mktemp("results"))


def frame_of(name: str, study: Path, stage: str = "parallelism") -> pd.DataFrame:
    """The rows the workflow gives a chart, by what it reads."""
    reads = CHARTS.get(name).reads
    if reads in sample_study.of_runs():
        comparison = read_tables([study / "stages/confirm/table.parquet"])
        return add_sides(sample_study.of_runs()[reads], StudySummary.read(study / "study.json"), comparison)
    if reads == "improvements":
        frame = read_tables([study / "improvements.parquet"])
        return select(frame, {"metric": sample_study.OBJECTIVE, "basis": "accelerator"})
    if reads == "comparison":
        return read_tables([study / "stages/confirm/table.parquet"])
    if reads == "history":
        return sample_history.history()
    if reads == "curves":
        return with_limits(sample_curves.curves(), StudySummary.read(study / "study.json"))
    stages = [study / "stages" / stage for stage in sample_study.TITLES]
    frame = read_tables([stage / "table.parquet" for stage in stages])
    decisions = [Decision.read(stage / "decision.json") for stage in stages]
    frame = add_decisions(frame, decisions, StudySummary.read(study / "study.json"))
    return select(frame, {"stage": stage}) if reads == "stage" else frame


def svg_texts(path: Path) -> list[str]:
    return ["".join(element.itertext()) for element in ET.parse(path).iter() if element.tag.endswith("}text")]


def draw(name: str, frame: pd.DataFrame, folder: Path) -> list[str]:
    write_chart(CHARTS.get(name), frame, {"svg": folder / "c.svg", "png": folder / "c.png", "json": folder / "c.json"})
    return svg_texts(folder / "c.svg")


# What exactly some charts show. A chart without an entry is still drawn, marked, emptied and measured below.
EXPECTED = {
    "improvement": ["sharegpt", "256", "567 · +121.6\u00a0%", "Total tokens/s per accelerator, in % of the baseline"],
    "latency": ["TTFT: time to first token (ms)", "439 → 397 · −9.7\u00a0%", "short-128x4"],
    "search_path": ["Baseline", "256", "Parallelism", "568", "Total tokens/s per accelerator"],
    "stage_candidates": [
        "299 · incumbent",
        "568 · winner",
        "× failed: out of memory",
        "× failed: refused",
    ],
    "pareto": ["Mean TTFT (ms)", "Mean TPOT (ms)", "Baseline", "Winner", "On the Pareto front"],
    "latency_distributions": ["TTFT (ms)", "TPOT (ms)", "ITL (ms)", "% of observations", "sharegpt", "Optimized"],
    "load_over_time": ["Requests in flight", "Output tokens/s", "Time (s)", "very-long-32000x100"],
    "device_telemetry": ["NPU utilisation (%)", "Power of a device (W)", "Memory of a device (GiB)", "Time (s)"],
    "users": ["sharegpt: output tokens/s per user", "16", "Baseline", "Winner"],
    "curves": ["Total tokens/s, as run", "Mean TTFT (ms)", "sharegpt: requests/s", "Baseline", "Winner"],
    "version_changes": [
        "tensor_parallel_size=4",
        "+5.3\u00a0%",
        "× new failure",
        "fixed failure",
        "Better",
        "No difference",
    ],
}


MARKED = {
    "improvement": ["1,562†", "355† · +362.0\u00a0%†"],
    "latency": ["72.0† → 71.8 · −0.4\u00a0%", "1,465 → 634† · −56.7\u00a0%"],
    "search_path": ["†", "‡"],
    "stage_candidates": ["570†", "2,500‡"],
    "pareto": ["†", "‡"],
    "curves": ["†", "‡"],
    "users": ["†", "‡"],
    "version_changes": ["+0.4\u00a0%†"],
}
"""Figures of suspect and invalid runs: the mark is behind each, or above its point. Every chart has the marks' key."""


@pytest.mark.parametrize("name", CHARTS.names())
def test_suspect_and_invalid_figures_are_marked(name, study, tmp_path):
    frame = frame_of(name, study, stage="batching")
    if name == "device_telemetry":  # it draws one workload, and the one that decides has valid runs
        frame = select(frame, {"workload": "short-128x4"})
    texts = draw(name, frame, tmp_path)
    assert [text for text in [*MARKED.get(name, []), MARKS_KEY] if text not in texts] == []
    valid = [column for column in frame if "validity" in column]
    texts = draw(name, frame.assign(**dict.fromkeys(valid, "ok")), tmp_path)
    assert not any(sign in text for sign in MARKS.values() for text in texts)


@pytest.mark.parametrize("name", CHARTS.names())
def test_chart_shows_what_was_measured(name, study, tmp_path):
    texts = draw(name, frame_of(name, study), tmp_path)
    assert len(texts) > 2, "a chart without data has one text"
    assert [text for text in EXPECTED.get(name, []) if text not in texts] == []
    assert json.loads((tmp_path / "c.json").read_text())["$schema"].startswith(
        "https://vega.github.io/schema/vega-lite"
    )
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json", "c.png", "c.svg"]


@pytest.mark.parametrize("name", CHARTS.names())
def test_chart_without_rows_says_so(name, study, tmp_path):
    texts = draw(name, frame_of(name, study).iloc[:0], tmp_path)
    assert len(texts) == 1 and len(texts[0].split()) > 3


@pytest.mark.parametrize("name", CHARTS.names())
def test_chart_fits_a_page(name, study, tmp_path):
    draw(name, frame_of(name, study), tmp_path)
    assert 300 < float(ET.parse(tmp_path / "c.svg").getroot().attrib["width"]) < 600


@pytest.mark.parametrize("name", CHARTS.names())
def test_chart_columns_are_in_the_schemas(name):
    known = {"is_winner", "stage_title", "change_percent", "too_many_failed", *LIMIT_COLUMNS}
    tables = (schemas.STAGE_TABLE, schemas.IMPROVEMENTS, schemas.HISTORY, schemas.TIMELINE)
    for table in (*tables, schemas.DISTRIBUTIONS, schemas.DEVICE_SERIES, schemas.CURVES):
        known |= set(table.names)
    assert set(CHARTS.get(name).columns) <= known


def test_text_is_drawn_in_png_without_any_installed_font(study, tmp_path):
    """A font that is not there draws nothing and raises nothing: compare the ink of a text with none."""
    texts = draw("stage_candidates", frame_of("stage_candidates", study).iloc[:0], tmp_path)
    with_text = (tmp_path / "c.png").stat().st_size
    from servelab.report.charts import nothing_to_show

    blank = nothing_to_show(" " * len(texts[0]))
    blank.save(tmp_path / "blank.png", scale_factor=2)
    assert with_text > 2 * (tmp_path / "blank.png").stat().st_size


def test_kept_incumbent_is_marked(study, tmp_path):
    stage = study / "stages/batching"
    summary = StudySummary.read(study / "study.json")
    frame = add_decisions(read_tables([stage / "table.parquet"]), [Decision.read(stage / "decision.json")], summary)
    assert "568 · incumbent, kept" in draw("stage_candidates", frame, tmp_path)


def test_failed_baseline_has_no_percentages(study, tmp_path):
    frame = frame_of("search_path", study)
    frame.loc[(frame["stage"] == "engine") & frame["is_incumbent"], ["outcome", "objective_value"]] = ["failed", None]
    texts = draw("search_path", frame, tmp_path)
    assert "568" in texts and not any("%" in text for text in texts)


def test_several_metrics_are_refused(study, tmp_path):
    with pytest.raises(ConfigError, match="shows one metric, and the rows have total_tokens_per_s, ttft_ms"):
        draw("improvement", read_tables([study / "improvements.parquet"]), tmp_path)


def test_missing_columns_are_named(study, tmp_path):
    with pytest.raises(ConfigError, match="lack is_winner"):
        draw("stage_candidates", read_tables([study / "stages/engine/table.parquet"]), tmp_path)


def test_broken_table_is_a_clear_error(tmp_path):
    (tmp_path / "table.parquet").write_text("not parquet")
    with pytest.raises(ServelabError, match=r"table\.parquet: not a readable Parquet file"):
        read_tables([tmp_path / "table.parquet"])


def test_table_with_no_rows_keeps_the_other_rows(tmp_path, study):
    empty = schemas.STAGE_TABLE.empty_table()
    pq.write_table(empty, tmp_path / "empty.parquet")
    rows = read_tables([tmp_path / "empty.parquet", study / "stages/engine/table.parquet"])
    assert list(rows["candidate"])[:2] == ["baseline", "sglang"]


def test_command_line_draws_every_chart_of_the_report(study, tmp_path):
    sample_history.history().to_parquet(tmp_path / "history.parquet")
    sample_curves.curves().to_parquet(tmp_path / "curves.parquet")
    for name, rows in sample_study.of_runs().items():
        rows.to_parquet(tmp_path / f"{name}.parquet")
    found = {name: str(tmp_path / f"{name}.parquet") for name in ("history", "curves", *sample_study.of_runs())}
    found |= {
        "study": str(study / "study.json"),
        "stages": [str(study / "stages" / stage / "table.parquet") for stage in sample_study.STAGES],
        "decisions": [str(study / "stages" / stage / "decision.json") for stage in sample_study.TITLES],
        "improvements": str(study / "improvements.parquet"),
    }
    files = {"input": found, "output": {"charts": str(tmp_path / "charts")}}
    subprocess.run([sys.executable, str(SCRIPT), f"files={json.dumps(files)}"], check=True)
    of_stages = {f"stage_candidates-{stage}" for stage in sample_study.TITLES}
    stems = set(CHARTS.names()) - {"stage_candidates"} | of_stages
    wanted = {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png", "json")}
    assert {path.name for path in (tmp_path / "charts").iterdir()} == wanted
    texts = {stem: svg_texts(tmp_path / "charts" / f"{stem}.svg") for stem in stems}
    assert "567 · +121.6\u00a0%" in texts["improvement"]  # on the objective's basis
    assert "568 · winner" in texts["stage_candidates-parallelism"]
    assert "568 · winner" not in texts["stage_candidates-engine"]


def test_a_run_with_too_many_failed_requests_is_not_on_the_front_of_chart_and_table(study, tmp_path):
    """Issue: half of a candidate's requests failed, and its latency, of the others only, was on the front."""
    summary = StudySummary.read(study / "study.json")
    tables = read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.TITLES])
    decisions = [Decision.read(study / "stages" / stage / "decision.json") for stage in sample_study.TITLES]
    metrics = ShownMeasurement(read_tables([study / "metrics.parquet"]))

    def front(rows):
        found = add_decisions(rows, decisions, summary)
        chart = CHARTS.get("pareto").build(found[list(CHARTS.get("pareto").columns)]).to_dict()
        drawn = {point["kind"] for points in chart["datasets"].values() for point in points if "kind" in point}
        return {row[0].text for row in front_table(found, metrics).rows}, drawn

    names, _ = front(tables)
    first = next(name for name in tables["candidate"] if name in names)
    for rate, stays in ((0.99, True), (0.486, False), (float("nan"), True)):
        changed = tables.assign(success_rate=tables["success_rate"].where(tables["candidate"] != first, rate))
        assert (first in front(changed)[0]) is stays, rate
    nothing = front(tables.assign(success_rate=0.5))
    assert nothing[0] == set() and "On the Pareto front" not in nothing[1]


@pytest.mark.parametrize("name", ["curves", "users"])
def test_each_point_of_a_curve_says_its_name_and_figures_when_pointed_at(study, tmp_path, name):
    found = frame_of(name, study)
    found.loc[found["candidate"] == "SGLang", "candidate"] = 'a <b> & "c"'
    write_chart(CHARTS.get(name), found, {"svg": tmp_path / "chart.svg"})
    parts = list(ET.parse(tmp_path / "chart.svg").iter())
    points = [part for part in parts if part.find("{http://www.w3.org/2000/svg}title") is not None]
    titles = [str(point[0].text) for point in points]
    drawn = (found["outcome"] == "ok").sum()
    assert len(titles) == drawn * (5 if name == "curves" else 1)
    assert any(title.startswith('engine: a <b> & "c", 1 requests/s: ') for title in titles)
    assert not any("aria-label" in point.attrib for point in points)
    if name == "users":
        row = found[(found["candidate"] == "winner") & (found["level"] == 4)].iloc[0]
        user, whole = 1000 / row["tpot_ms_mean"], row["total_tokens_per_s"] / 2
        expected = f"confirm: winner, 4 requests/s: {user:.0f} tokens/s per user, {whole:.0f} total tokens/s"
        assert any(title.startswith(expected) for title in titles), (expected, titles)


def test_limits_on_latency_are_drawn_where_a_study_has_them(study, tmp_path):
    summary = StudySummary.read(study / "study.json")
    given = {"slos": {"ttft_ms": 500.0}, "constraints": {"tpot_ms": {"mean": 12.5}, "ttft_ms": {"p99": 700.0}}}
    bare = summary.model_copy(
        update={"objective": summary.objective.model_copy(update={"slos": {}, "constraints": {}}), "loads": {}}
    )
    limited = bare.model_copy(update={"objective": bare.objective.model_copy(update=given)})
    drawn = draw("curves", with_limits(sample_curves.curves(), limited), tmp_path)
    said = [text for text in drawn if text.startswith(("SLO", "limit"))]
    assert sorted(said) == ["SLO of a request: 500 ms", "limit: 12.5 ms", "limit: 700 ms"]
    assert "P99 TTFT (ms)" in drawn and "P99 TPOT (ms)" not in drawn
    spec = json.loads((tmp_path / "c.json").read_text())
    drawn_limits = [row["limit"] for rows in spec["datasets"].values() for row in rows if "limit" in row]
    assert sorted(set(drawn_limits)) == [12.5, 500, 700]
    others = draw("curves", with_limits(sample_curves.curves().assign(decides=False), limited), tmp_path)
    assert [text for text in others if text.startswith(("SLO", "limit"))] == ["SLO of a request: 500 ms"]
    own = limited.model_copy(update={"loads": {f"sharegpt-r{level}": {"slos": {}} for level in sample_curves.LEVELS}})
    assert "P99 TTFT (ms)" in draw("curves", with_limits(sample_curves.curves(), own), tmp_path)
    without = draw("curves", with_limits(sample_curves.curves(), bare), tmp_path)
    assert not [text for text in without if text.startswith(("SLO", "limit", "P99"))]
