"""`snakemake --report` on a finished study: it holds report, charts and tables of the study, with captions."""

import re
import zipfile

import pytest


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
