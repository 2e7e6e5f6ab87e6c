"""Fixtures around the study made for the tests."""

from pathlib import Path

import pytest
import yaml
from made_study import demo_study

from servelab.project import load_project
from servelab.study import Study

ROOT = Path(__file__).parents[2]


@pytest.fixture
def study_content():
    """The study as plain data, to change at will."""
    return demo_study()


@pytest.fixture
def make_project(tmp_path):
    """Loads changed study content as a project."""

    def make(content):
        file = tmp_path / f"{content['study']}.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_project(file, ROOT)

    return make


@pytest.fixture
def study(study_content):
    """The demo study, typed."""
    return Study.model_validate(study_content)
