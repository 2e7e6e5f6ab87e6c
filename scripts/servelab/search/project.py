"""Loads a study with everything it refers to, and checks its search as well."""

from __future__ import annotations

from pathlib import Path

from servelab.search.strategies import STRATEGIES, outlines
from servelab.study.project import Project, check_name
from servelab.study.read_project import read_project


def load_project(file: Path, root: Path) -> Project:
    """The study in a file, with everything checked; `ConfigError` for any mistake, before anything starts.

    `root` is the folder that contains `config/` and `envs/`.
    """
    project = read_project(file, root)
    _check_search(project)
    return project


def _check_search(project: Project) -> None:
    search = project.study.search
    check_name(project, "search.strategy", search.strategy, STRATEGIES.names(), "search strategy")
    outlines(project.study)
