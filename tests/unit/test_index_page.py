"""The index page: finished studies with their gains, and those that are not finished, as such."""

import json

import made_run
import pytest
import sample_study

from servelab.report.index_page import index_page


@pytest.fixture
def results(tmp_path):
    results = tmp_path / "results"
    folder = sample_study.write(results)
    recommended = json.loads((folder / "recommended.json").read_text())
    recommended |= {"validity": "suspect"}
    (folder / "recommended.json").write_text(json.dumps(recommended))
    (folder / "report.html").write_text("a report")
    run = results / "runs" / recommended["run_id"]
    made_run.status(finished_at="2026-11-21T10:00:00+00:00").write(run / "status.json")
    return results


def rows(results, *expected):
    sections = index_page(results, expected).sections
    return {row[0].note.split(",")[0]: row for row in sections[0].table.rows}


def test_a_finished_study_has_its_gain_and_a_link_to_its_report(results):
    row = rows(results)[sample_study.STUDY]
    assert (row[0].text, row[0].link) == ("Qwen3-32B on eight NPUs", f"studies/{sample_study.STUDY}/report.html")
    assert row[1].text.startswith("Use this command: 256 → 567") and row[1].mark == "†" and row[1].is_good
    assert row[1].note == "Qwen/Qwen3-32B on Ascend 910B, sglang 0.5.6" and row[2].text == "2026-11-21"


def test_what_is_missing_or_unfinished_or_broken_is_listed_as_such(results):
    begun = results / "studies/begun/stages/engine"
    begun.mkdir(parents=True)
    broken = results / "recorded/broken"
    broken.mkdir(parents=True)
    (broken / "study.json").write_text('{"study": "broken"}')
    (broken / "recommended.json").write_text("{}")
    (results / "studies/checked").mkdir()
    (results / "studies/checked/preflight.json").write_text("[]")
    found = rows(results, "studies/wanted", f"studies/{sample_study.STUDY}")
    assert set(found) == {sample_study.STUDY, "begun", "broken", "wanted"}
    assert (found["begun"][1].text, found["wanted"][1].text) == ("not finished", "not begun")
    assert found["broken"][1].text == "cannot be read" and "study.json: title" in found["broken"][1].note
    assert "1 study with an answer, 3 without" in index_page(results, ["studies/wanted"]).lead
