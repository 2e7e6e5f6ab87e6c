"""docs/vllm-on-one-h100-node.md shows the study as it is, and the plan that a dry run prints."""

from test_documents import ROOT

from servelab.search.forecast import forecast
from servelab.search.project import load_project

STUDY = ROOT / "config/studies/vllm-h100-node.yaml"
PAGE = (ROOT / "docs/vllm-on-one-h100-node.md").read_text()


def test_the_page_shows_the_study():
    assert f"```yaml\n{STUDY.read_text()}```" in PAGE


def test_the_page_shows_the_plan(tmp_path):
    """The first rows and the proof's, as the page shows them."""
    lines = forecast(load_project(STUDY, ROOT), tmp_path).lines()
    proof = next(line for line in lines if "Proof:" in line)
    for line in [*lines[:4], proof]:
        assert f"    {line}\n" in PAGE, line
