"""The board of recorded studies: what was published beside what is sound, for the best configuration of each engine."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from servelab.core.yaml_file import read_yaml
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import write_table
from servelab.recorded.audit import AuditEvidence
from servelab.recorded.audit.claims_table import audit
from servelab.recorded.log_tables import parse_recorded
from servelab.recorded.logs import Logs
from servelab.report.index_page import BOARD_COLUMNS, board_table, index_page
from servelab.report.page import render_html, render_markdown
from servelab.search.candidates_table import describe
from servelab.study.recorded.plan import plan_recorded
from servelab.study.recorded.study import load_recorded

EXAMPLE = Path(__file__).parents[2] / "config/recorded/example"
WINNER = "parallelism/fp8-tp4"


@pytest.fixture
def results(tmp_path):
    """Results of the example, whose baseline prints a rate that is not tokens / duration, below `results`."""
    config = shutil.copytree(EXAMPLE, tmp_path / "config/example")
    content = read_yaml(EXAMPLE / "study.yaml")
    content["claims"] = [each for each in content["claims"] if each["kind"] != "figure"]
    claim = {"kind": "figure", "where": "x", "candidate": WINNER, "workload": "sharegpt", "printed": "7600.00"}
    content["claims"].append(claim)
    (config / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    study = load_recorded(config)
    folder = tmp_path / "results/recorded/example"
    metrics, incumbent = [], study.baseline
    for stage in study.stage_names:
        plan = plan_recorded(study, config, stage, incumbent)
        tables = parse_recorded(study, plan, config)
        (folder / "stages" / stage).mkdir(parents=True)
        plan.write(folder / "stages" / stage / "plan.json")
        write_table(tables["table"], folder / "stages" / stage / "table.parquet")
        metrics.append(tables["metrics"])
        incumbent = WINNER
    found = audit(AuditEvidence(study, Logs(study, config), {"parallelism": WINNER, "attention": WINNER}, "x"))
    write_table(found, folder / "claims.parquet")
    whole = pa.concat_tables(metrics).to_pandas().drop_duplicates(["run_id", "workload", "metric"])
    write_table(pa.Table.from_pandas(whole, schema=schemas.METRICS, preserve_index=False), folder / "metrics.parquet")
    describe(study, {"sharegpt": "ShareGPT"}).write(folder / "study.json")
    (folder / "recommended.json").write_text(json.dumps({}))
    (folder / "report.html").write_text("a report")
    return tmp_path / "results"


def test_the_best_configuration_of_an_engine_has_both_figures_and_links(results):
    table = board_table(results)
    assert table.columns == BOARD_COLUMNS
    (row,) = table.rows
    model, hardware, engine, workload, configuration, published, sound, off, gain = row
    assert (model.text, hardware.text) == ("Qwen/Qwen3-235B-A22B-Instruct-2507", "8 × NVIDIA H100")
    assert (engine.text, workload.text) == ("vllm 0.11.0", "ShareGPT")
    assert (configuration.text, configuration.note) == (WINNER, "on 4 of 8")
    assert (published.text, sound.text, sound.value) == ("7600.00", "7527.80", 7527.80)
    assert off.text.replace("\u00a0", " ") == "+1.0 %"
    assert gain.text.replace("\u00a0", " ") == "+78.7 %"  # of the node
    assert sound.link == "recorded/example/logs/fp8-tp4.txt" and published.link.endswith("report.html#audit")
    assert all(cell.link.startswith("recorded/example/") for cell in row)


def test_what_cannot_win_is_not_the_best(results):
    path = results / "recorded/example/study.json"
    content = json.loads(path.read_text())
    content["objective"]["min_success_rate"] = 0.999
    path.write_text(json.dumps(content))
    assert board_table(results).rows == []


def test_an_unfinished_study_is_not_on_the_board(results):
    (results / "recorded/example/claims.parquet").write_bytes(b"none")
    assert board_table(results).rows == []
    assert board_table(results / "nothing").rows == []


def test_the_index_shows_the_board_as_page_and_as_text(results):
    page = index_page(results)
    assert [section.heading for section in page.sections] == ["Studies", "Board of recorded studies"]
    html = render_html("page.html.j2", {"page": page})
    assert '<table class="facts board">' in html and "http://" not in html and "https://" not in html
    text = render_markdown("page.md.j2", {"page": page})
    (line,) = (each for each in text.splitlines() if "7600.00" in each)
    assert "[7527.80](recorded/example/logs/fp8-tp4.txt)" in line and line.count("|") == len(BOARD_COLUMNS) + 1
