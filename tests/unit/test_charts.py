"""Every chart, on the tables of the sample study and on empty ones."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd
import pytest
import sample_curves
import sample_study

from servelab.core.figure_text import MARKS, MARKS_KEY
from servelab.metrics.tables.io import read_tables
from servelab.report.charts import CHARTS
from servelab.report.charts.curves import with_limits
from servelab.report.charts.write import study_charts, write_chart
from servelab.search.decision import Decision
from servelab.study.project import StudySummary


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return sample_study.write(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def frames(study):
    """The rows that the workflow gives each chart, by its name."""
    charts = study_charts(
        StudySummary.read(study / "study.json"),
        read_tables([study / "stages" / stage / "table.parquet" for stage in sample_study.STAGES]),
        [Decision.read(study / "stages" / stage / "decision.json") for stage in sample_study.TITLES],
        read_tables([study / "improvements.parquet"]),
        sample_study.proof()["promised_change_percent"],
        sample_curves.curves(),
    )
    return {chart.name: rows for chart, rows in charts}


def svg_texts(path: Path) -> list[str]:
    return ["".join(element.itertext()) for element in ET.parse(path).iter() if element.tag.endswith("}text")]


def draw(name: str, frame: pd.DataFrame, folder: Path, *kinds: str) -> list[str]:
    write_chart(CHARTS.get(name), frame, {kind: folder / f"c.{kind}" for kind in ("svg", *kinds)})
    return svg_texts(folder / "c.svg")


# What exactly some charts show. A chart without an entry is still drawn, marked, emptied and measured below.
EXPECTED = {
    "proof": ["Pair 1", "256 → 567 · +121.6\u00a0%", "Total tokens/s per accelerator", "Promised"],
    "tried": ["256", "568 · winner", "× failed: out of memory", "× failed: refused"],
    "users": ["sharegpt: output tokens/s per user", "16", "Baseline", "Winner"],
    "curves": ["Total tokens/s, as run", "Mean TTFT (ms)", "sharegpt: requests/s", "Baseline", "Winner"],
}


MARKED = {
    "proof": ["†"],
    "tried": ["570† · within noise of the best", "2,500‡ · invalid"],
    "curves": ["†", "‡"],
    "users": ["†", "‡"],
}
"""Figures of suspect and invalid runs: the mark is behind each, or above its point. Every chart has the marks' key."""


def test_a_long_option_is_on_one_line_and_no_label_is_left_out(frames, tmp_path):
    draw("tried", frames["tried"].assign(candidate="max_num_batched_tokens=16384"), tmp_path, "json")
    axis = json.loads((tmp_path / "c.json").read_text())["layer"][1]["encoding"]["y"]["axis"]
    assert '["max_num_batched_tokens=16384"]' in axis["labelExpr"] and axis["labelOverlap"] is False


@pytest.mark.parametrize("name", CHARTS.names())
def test_chart_shows_on_a_page_what_was_measured_and_marks_suspect_and_invalid_figures(name, frames, tmp_path):
    frame = frames[name]
    valid = [column for column in frame if "validity" in column]
    texts = draw(name, frame.assign(**dict.fromkeys(valid, "ok")), tmp_path)
    assert not any(sign in text for sign in MARKS.values() for text in texts)
    texts = draw(name, frame, tmp_path, "png", "json")
    assert [text for text in [*MARKED.get(name, []), MARKS_KEY] if not any(text in each for each in texts)] == []
    assert [text for text in EXPECTED.get(name, []) if text not in texts] == []
    assert json.loads((tmp_path / "c.json").read_text())["$schema"].startswith(
        "https://vega.github.io/schema/vega-lite"
    )
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json", "c.png", "c.svg"]
    assert 300 < float(ET.parse(tmp_path / "c.svg").getroot().attrib["width"]) < 600


def test_an_invalid_run_is_not_ranked_and_no_interval_is_below_zero(frames):
    wide = frames["tried"].assign(objective_ci95_low=-200.0)
    rows = [row for table in CHARTS.get("tried").build(wide).to_dict()["datasets"].values() for row in table]
    (invalid,) = {row["row"] for row in rows if "invalid" in row["text"]}
    assert all(row["row"] < invalid for row in rows if row["has_point"])
    assert min(row["objective_ci95_low"] for row in rows if row["has_point"]) == 0


@pytest.mark.parametrize("name", ["curves", "users"])
def test_each_point_of_a_curve_says_its_name_and_figures_when_pointed_at(frames, tmp_path, name):
    found = frames[name].copy()
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
    drawn = draw("curves", with_limits(sample_curves.curves(), limited), tmp_path, "json")
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
    without = with_limits(sample_curves.curves(), bare)
    assert "limit" not in json.dumps(CHARTS.get("curves").build(without).to_dict()["datasets"])
