"""Runs that another results folder has (`runs_from`)."""

from __future__ import annotations

import made_run
import pytest
from made_results import write_run

from servelab.archive.restore import SharedRuns
from servelab.core.errors import ServelabError
from servelab.core.seal import faults_of_seal
from servelab.measure.run_files import read_import
from servelab.workflow.studies import read_configuration, shared_runs


@pytest.fixture
def other(tmp_path):
    """Another results folder with two runs."""
    for start in ("search-0", "search-1"):
        write_run(tmp_path / "other/runs", made_run.spec(start=start))
    return tmp_path / "other"


@pytest.fixture
def lines():
    return []


@pytest.fixture
def shared(other, tmp_path, lines):
    return taken_from(other, tmp_path, lines)


def taken_from(place, tmp_path, lines):
    return SharedRuns([str(place)], tmp_path / "results", lines.append)


def ids(results):
    return sorted(path.name for path in (results / "runs").iterdir())


def test_a_run_is_taken_with_a_mark_of_its_origin(shared, other, tmp_path, lines):
    run_id, left = ids(other)
    assert not shared.has("0" * 20) and not shared.fetch("0" * 20)
    assert shared.fetch(run_id) and lines == []
    taken = tmp_path / "results/runs" / run_id
    assert faults_of_seal(taken) == [] and ids(tmp_path / "results") == [run_id]
    (mark,) = read_import(taken).imports
    assert (mark.origin, mark.archive) == (str(other), None)
    assert read_import(other / "runs" / run_id) is None and left in ids(other)
    assert not list((tmp_path / "results").glob(".fetched-*"))
    assert shared.lines() == [f"{other}: has 1 of the missing runs, which are not measured again"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: (run / "server.log").write_text("other\n"), "server.log: was "),
        (lambda run: (run / "spec.json").write_text('{"a": 1}'), "spec.json: "),
    ],
)
def test_a_broken_run_is_not_taken(shared, other, tmp_path, lines, damage, said):
    run_id, sound = ids(other)
    damage(other / "runs" / run_id)
    assert not shared.fetch(run_id) and not shared.has(run_id) and not (tmp_path / "results/runs" / run_id).exists()
    (line,) = lines
    assert line.startswith(f"{other}: ") and said in line and line.endswith("it is not taken from there")
    assert shared.fetch(sound)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nowhere", "nowhere: is no results folder"),
        ("empty", "no results folder"),
        # in one piece no archive would take this file
        (["@".join(("s3://key:secret", "bucket/x"))], "a credential"),
    ],
)
def test_a_place_that_cannot_be_used_is_an_error_with_its_name(tmp_path, monkeypatch, value, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ServelabError, match=said) as caught:
        shared_runs(read_configuration({"studies": [], "runs_from": value}), tmp_path, print).has("0" * 20)
    assert "runs_from" in str(caught.value) and "key:secret" not in str(caught.value)
