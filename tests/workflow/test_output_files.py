"""Every file that a real study leaves is named in docs/reference/files.md, with its columns, types and keys."""

import json
import os
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from servelab.core.errors import ServelabError
from servelab.metrics.tables import schemas
from servelab.report.files_page import FILES


def named(path):
    """The entry of a path below `results/`; None for one that the page does not name."""
    for file in FILES:
        pattern = re.sub(r"<[^>]+>", "[^/]+", re.escape(file.name)) + (".*" if file.name.endswith("/") else "")
        pattern = re.sub(r"\\{(.+?),(.+?)\\}", r"(?:\1|\2)", pattern)
        if any(re.fullmatch(pattern, each) for each in (path, re.sub("^recorded/", "studies/", path))):
            return file
    return None


def left_by(results):
    """Files below a folder of results, but for what is being made and the inside of environments."""
    found = []
    for folder, folders, names in os.walk(results, followlinks=True):
        in_environment = Path(folder).parent.name == "envs"
        folders[:] = [name for name in folders if not in_environment and not name.startswith(".")]
        found += [os.path.relpath(f"{folder}/{name}", results) for name in names if not name.startswith(".")]
    return sorted(found)


@pytest.fixture(scope="module", params=["measured", pytest.param("all", marks=pytest.mark.slow)])
def left(request, finished, everything):
    """Results of a measured study; or of a recorded one and a comparison beside it, too."""
    return everything() if request.param == "all" else finished.folder / "results"


@pytest.fixture(scope="module")
def everything(finished, tmp_path_factory):
    """Makes results of all kinds, once."""

    @cache
    def make():
        workspace = finished.copy(tmp_path_factory.mktemp("output") / "copy")
        workspace.write("config/config.yaml", "studies: [tiny]\nrecorded: [example]\n")
        workspace.snakemake()
        command = [sys.executable, "scripts/servelab_command.py", "compare", "tiny", "results/studies/tiny"]
        subprocess.run(command, cwd=workspace.folder, env=workspace.environment(), check=True)
        workspace.snakemake("results/index.html", "--forcerun", "render_index")
        return workspace.folder / "results"

    return make


def test_every_file_is_named(left):
    files = left_by(left)
    assert {"index.html", "studies/tiny/report.html"} <= set(files)
    assert [path for path in files if named(path) is None] == []


def test_every_table_has_the_columns_and_types_of_the_page(left):
    tables = [path for path in left_by(left) if path.endswith(".parquet") and "/tables/" not in path]
    assert len(tables) > 20
    for path in tables:
        expected = schemas.TABLES[named(path).table]
        assert pq.read_schema(left / path).remove_metadata().equals(expected.remove_metadata()), path


def test_every_json_file_is_what_its_model_says(left, tmp_path):
    """Read and written again by its model, a file is the same: no key is missing from the page, and none is wrong."""
    seen = set()
    for path in left_by(left):
        entry = named(path)
        if path.endswith(".json") and entry.models:
            seen.add(entry.name)
            content = json.loads((left / path).read_text())
            assert any(again(model, left / path, tmp_path / "again.json") == content for model in entry.types), path
    assert len(seen) > 10


def again(model, path, copy):
    try:
        model.read(path).write(copy)
    except ServelabError:
        return None
    return json.loads(copy.read_text())


@pytest.mark.slow
def test_the_report_of_snakemake_has_charts_tables_and_captions(finished, tmp_path):
    before = finished.runs()
    finished.snakemake("--report", str(tmp_path / "report.zip"))
    assert finished.runs() == before
    with zipfile.ZipFile(tmp_path / "report.zip") as archive:
        names = archive.namelist()
        page = archive.read(next(name for name in names if name.endswith("report.html") and "data" not in name))
        held = {name.rsplit("/", 1)[-1] for name in names}
    text = page.decode()
    assert {"report.html", "tried.svg", "stages.csv", "metrics.csv"} <= held
    assert "studies/tiny" in text
    for said in ("A chart of studies/tiny", "A table behind the report of studies/tiny", "The report of studies/tiny"):
        assert said in text
    assert not re.search(r"(src|href)=\"https?://[^\"]*\.(js|css)", text)
