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
    for row in recommended["improvements"]:
        row |= {"change_percent": 121.64, "change_ci95_low_percent": 119.7, "change_ci95_high_percent": 123.7}
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
    assert [cell.text for cell in row[1:4]] == ["Qwen/Qwen3-32B", "Ascend 910B, 8 in a node", "sglang 0.5.6"]
    assert row[4].text.replace("\u00a0", " ") == "+121.6 %" and row[4].mark == "†" and row[4].is_good
    assert row[5].text == "2026-11-21"


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
    assert (found["begun"][3].text, found["wanted"][3].text) == ("not finished", "not begun")
    assert found["broken"][3].text == "cannot be read" and "study.json: title" in found["broken"][3].note
    assert "1 study with an answer, 3 without" in index_page(results, ["studies/wanted"]).lead
