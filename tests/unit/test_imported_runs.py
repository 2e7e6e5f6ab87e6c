"""Workflows that are not to use runs which were restored from an archive."""

from __future__ import annotations

import shutil

import made_run
import pytest
from made_results import write_run

from servelab.core.errors import ConfigError
from servelab.core.seal import faults_of_seal
from servelab.measure.run_files import Import, ImportedRun
from servelab.measure.run_folder import set_aside_if_broken
from servelab.measure.sealed_runs import SealedRuns
from servelab.results.past_runs import PastTimes, past_runs
from servelab.workflow.studies import read_configuration

WHY = "was imported from x.zip, and `use_imported_runs` is false"


@pytest.fixture
def runs(tmp_path):
    """A run that was measured here and one that was not."""
    write_run(tmp_path / "runs", made_run.spec(start="search-0"))
    imported = write_run(tmp_path / "runs", made_run.spec(start="search-1"))
    when = "2026-11-21T10:00:00+00:00"
    mark = Import(
        archive="x.zip",
        archive_sha256="0" * 64,
        study="x",
        imported_at=when,
        archive_signed_by=None,
    )
    ImportedRun(run_id=imported.name, imports=[mark]).write(imported / "imported.json")
    return tmp_path / "runs"


def split(runs):
    (mark,) = runs.glob("*/imported.json")
    (own,) = (path for path in runs.iterdir() if path != mark.parent)
    return own, mark.parent


def test_an_imported_run_counts_unless_it_is_not_to(runs, tmp_path):
    own, imported = split(runs)
    assert faults_of_seal(imported) == []
    for use_imported in (True, False, True):  # what was compared is kept, and does not hide the mark
        lines = []
        sealed = SealedRuns(runs, tmp_path / "kept", lines.append, use_imported=use_imported)
        assert sealed.is_complete(own.name)
        assert sealed.is_complete(imported.name) == use_imported
        assert bool(sealed.marks(imported.name)) != use_imported
        said = [] if use_imported else [f"run {imported.name} {WHY}; it is set aside and measured again"]
        assert lines == said


def test_history_and_estimates_leave_imported_runs_out_where_they_are_not_to_be_used(runs):
    own, imported = split(runs)
    assert {run.run_id for run in past_runs(runs)} == {own.name, imported.name}
    assert [run.run_id for run in past_runs(runs, use_imported=False)] == [own.name]
    shutil.rmtree(own)
    assert PastTimes(runs) and not PastTimes(runs, use_imported=False)


def test_only_the_imported_run_is_set_aside(runs, capsys):
    own, imported = split(runs)
    for run in (own, imported):
        set_aside_if_broken(run)
    assert own.exists() and imported.exists()
    for run in (own, imported):
        set_aside_if_broken(run, use_imported=False)
    assert own.exists() and not imported.exists()
    (aside,) = (runs / "set-aside").iterdir()
    assert (aside / "imported.json").exists() and faults_of_seal(own) == []
    assert capsys.readouterr().err.startswith(f"run {imported.name} {WHY}; moved to ")


@pytest.mark.parametrize("value", ["no", 0, None, [], "False or true"])
def test_the_key_is_true_or_false(value):
    with pytest.raises(ConfigError, match="use_imported_runs"):
        read_configuration({"studies": [], "use_imported_runs": value})


def test_by_default_they_are_used():
    assert read_configuration({"studies": []}).use_imported_runs
    for value in (False, "false"):  # Snakemake leaves the text where `--config` gives it
        assert not read_configuration({"studies": [], "use_imported_runs": value}).use_imported_runs
