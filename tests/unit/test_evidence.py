"""Every test and bench that docs/evidence.md names exists."""

import re

from test_documents import ROOT

TEXT = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(?:tests/)?((?:bench|engines|pods|slurm|unit|workflow)/test_\w+\.py)`", TEXT)
    named += [f"bench/{name}" for name in re.findall(r"`(test_\w+\.py)`", TEXT)]
    assert len(named) > 25
    assert [path for path in named if not (ROOT / "tests" / path).exists()] == []
