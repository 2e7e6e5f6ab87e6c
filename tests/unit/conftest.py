"""Fixtures around the study made for the tests."""

from pathlib import Path

import pytest
import yaml
from made_search import TWO
from made_study import demo_study

from servelab.search.project import load_project
from servelab.study.study import Study

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


@pytest.fixture
def project_with(study_content, make_project):
    """The study of the tests with another `search`, and what else is to be changed."""

    def make(strategy="staged", objective=None, stages=None, **settings):
        study_content["search"] = {"strategy": strategy, **settings}
        study_content["objective"] |= objective or {}
        study_content["stages"] = stages or study_content["stages"]
        return make_project(study_content)

    return make


@pytest.fixture
def two(project_with):
    """A study of two stages of one candidate each, `A` and `B`."""

    def make(**settings):
        return project_with(stages=[dict(stage) for stage in TWO], **settings)

    return make
