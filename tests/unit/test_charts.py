"""Every chart, on the tables of the sample study and on empty ones."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import sample_history
import sample_study

from servelab import schemas
from servelab.chart_files import add_decisions, add_sides, read_tables, select, write_chart
from servelab.charts import CHARTS
from servelab.errors import ConfigError, ServelabError
from servelab.figures import MARKS, MARKS_KEY
from servelab.report.inputs import Decision, Study, read

OF_RUNS = {chart.name: chart.reads for chart in CHARTS if chart.reads in sample_study.of_runs()}
SCRIPT = Path(__file__).parents[2] / "scripts" / "plot_charts.py"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return sample_study.write(tmp_path_factory.mktemp("results"))


def frame_of(name: str, study: Path, stage: str = "parallelism") -> pd.DataFrame:
    """The rows the workflow gives a chart."""
    if name in OF_RUNS:
        comparison = read_tables([study / "stages/comparison/table.parquet"])
        rows = sample_study.of_runs()[OF_RUNS[name]]
        return add_sides(rows, read(study / "study.json", Study), comparison)
    if name == "improvement":
        frame = read_tables([study / "improvements.parquet"])
        return select(frame, {"metric": sample_study.OBJECTIVE, "basis": "accelerator"})
    if name == "latency":
        return read_tables([study / "stages/comparison/table.parquet"])
    if name == "version_changes":
        return sample_history.history()
    stages = [study / "stages" / stage for stage in sample_study.TITLES]
    frame = read_tables([stage / "table.parquet" for stage in stages])
    frame = add_decisions(frame, [read(stage / "decision.json", Decision) for stage in stages])
    return select(frame, {"stage": stage}) if name == "stage_candidates" else frame


def svg_texts(path: Path) -> list[str]:
    return ["".join(element.itertext()) for element in ET.parse(path).iter() if element.tag.endswith("}text")]


def draw(name: str, frame: pd.DataFrame, folder: Path) -> list[str]:
    write_chart(CHARTS.get(name), frame, {"svg": folder / "c.svg", "png": folder / "c.png", "json": folder / "c.json"})
    return svg_texts(folder / "c.svg")


EXPECTED = {
    "improvement": ["sharegpt", "256", "567 · +121.6\u00a0%", "Total tokens/s per accelerator, in % of the baseline"],
    "latency": ["TTFT: time to first token (ms)", "439 → 397 · −9.7\u00a0%", "short-128x4"],
    "search_path": ["Baseline", "256", "Parallelism", "568 · +121.7\u00a0%", "Total tokens/s per accelerator"],
    "stage_candidates": [
        "299 · incumbent",
        "568 · +89.8\u00a0%, winner",
        "× failed: out of memory",
        "× failed: refused",
    ],
    "pareto": ["Mean TTFT (ms)", "Mean TPOT (ms)", "Baseline", "Winner", "On the Pareto front"],
    "latency_distributions": ["TTFT (ms)", "TPOT (ms)", "ITL (ms)", "% of observations", "sharegpt", "Optimized"],
    "load_over_time": ["Requests in flight", "Output tokens/s", "Time (s)", "very-long-32000x100"],
    "device_telemetry": ["NPU utilisation (%)", "Power of a device (W)", "Memory of a device (GiB)", "Time (s)"],
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
    "stage_candidates": ["570† · +0.5\u00a0%", "2,500‡ · –"],
    "pareto": ["†", "‡"],
    "latency_distributions": [],
    "load_over_time": [],
    "device_telemetry": [],
    "version_changes": ["+0.4\u00a0%†"],
}
"""Figures of suspect and invalid runs: the mark stands behind each, or above its point."""


@pytest.mark.parametrize("name", CHARTS.names())
def test_suspect_and_invalid_figures_are_marked(name, study, tmp_path):
    frame = frame_of(name, study, stage="batching")
    if name == "device_telemetry":  # it draws one workload, and the one that decides has valid runs
        frame = select(frame, {"workload": "short-128x4"})
    texts = draw(name, frame, tmp_path)
    assert [text for text in [*MARKED[name], MARKS_KEY] if text not in texts] == []
    valid = [column for column in frame if "validity" in column]
    texts = draw(name, frame.assign(**dict.fromkeys(valid, "ok")), tmp_path)
    assert not any(sign in text for sign in MARKS.values() for text in texts)


def test_every_chart_has_its_expectation():
    assert set(EXPECTED) == set(MARKED) == set(CHARTS.names())


@pytest.mark.parametrize("name", CHARTS.names())
def test_chart_shows_what_was_measured(name, study, tmp_path):
    texts = draw(name, frame_of(name, study), tmp_path)
    assert [text for text in EXPECTED[name] if text not in texts] == []
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
    known = {"is_winner", "stage_title", "change_percent"}
    tables = (schemas.STAGE_TABLE, schemas.IMPROVEMENTS, schemas.HISTORY, schemas.TIMELINE)
    for table in (*tables, schemas.DISTRIBUTIONS, schemas.DEVICE_SERIES):
        known |= set(table.names)
    assert set(CHARTS.get(name).columns) <= known


def test_text_is_drawn_in_png_without_any_installed_font(study, tmp_path):
    """A font that is not there draws nothing and raises nothing: compare the ink of a text with none."""
    texts = draw("stage_candidates", frame_of("stage_candidates", study).iloc[:0], tmp_path)
    with_text = (tmp_path / "c.png").stat().st_size
    from servelab.charts import nothing_to_show

    blank = nothing_to_show(" " * len(texts[0]))
    blank.save(tmp_path / "blank.png", scale_factor=2)
    assert with_text > 2 * (tmp_path / "blank.png").stat().st_size


def test_kept_incumbent_is_marked(study, tmp_path):
    stage = study / "stages/batching"
    frame = add_decisions(read_tables([stage / "table.parquet"]), [read(stage / "decision.json", Decision)])
    assert "568 · incumbent, kept" in draw("stage_candidates", frame, tmp_path)


def test_failed_baseline_has_no_percentages(study, tmp_path):
    frame = frame_of("search_path", study)
    frame.loc[(frame["stage"] == "engine") & frame["is_incumbent"], ["outcome", "objective_value"]] = ["failed", None]
    texts = draw("search_path", frame, tmp_path)
    assert "568" in texts and not any("%" in text for text in texts)


def test_several_metrics_are_refused(study, tmp_path):
    with pytest.raises(ConfigError, match=r"choose with --where metric=… of total_tokens_per_s, ttft_ms"):
        draw("improvement", read_tables([study / "improvements.parquet"]), tmp_path)


def test_missing_columns_are_named(study, tmp_path):
    with pytest.raises(ConfigError, match="lack is_winner, change_percent"):
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
    stages = [str(study / "stages" / stage / "table.parquet") for stage in sample_study.STAGES]
    decisions = [str(study / "stages" / stage / "decision.json") for stage in sample_study.TITLES]
    command = [sys.executable, str(SCRIPT), "--study", str(study / "study.json"), "--stages", *stages]
    command += ["--decisions", *decisions, "--improvements", str(study / "improvements.parquet")]
    sample_history.history().to_parquet(tmp_path / "history.parquet")
    command += ["--history", str(tmp_path / "history.parquet")]
    for name, rows in sample_study.of_runs().items():
        rows.to_parquet(tmp_path / f"{name}.parquet")
        command += [f"--{name.replace('_', '-')}", str(tmp_path / f"{name}.parquet")]
    subprocess.run([*command, "--output", str(tmp_path / "charts")], check=True)
    of_stages = {f"stage_candidates-{stage}" for stage in sample_study.TITLES}
    stems = set(CHARTS.names()) - {"stage_candidates"} | of_stages
    wanted = {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png", "json")}
    assert {path.name for path in (tmp_path / "charts").iterdir()} == wanted
    texts = {stem: svg_texts(tmp_path / "charts" / f"{stem}.svg") for stem in stems}
    assert "567 · +121.6\u00a0%" in texts["improvement"]  # on the objective's basis
    assert "568 · +89.8\u00a0%, winner" in texts["stage_candidates-parallelism"]
    assert "568 · +89.8\u00a0%, winner" not in texts["stage_candidates-engine"]
