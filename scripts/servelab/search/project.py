"""Loads a study with everything it refers to, and checks its search as well."""

from __future__ import annotations

from pathlib import Path

from servelab.search.strategies import STRATEGIES, outlines
from servelab.study.predictions import OBJECTIVES
from servelab.study.project import Project, check_name, error_at
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
    if project.study.objective.pareto and (search.strategy == "staged" or search.prior is not None):
        wrong = "`staged` and `prior` know one metric only"
        raise error_at(project, "objective.pareto", f"{wrong}; search with `adaptive` or `grid`, without `prior`")
    if search.prior is not None and search.strategy != "adaptive":
        raise error_at(project, "search.prior", f"{search.strategy} does not use it; search with `adaptive`")
    if search.prior is not None and project.study.objective.metric_and_basis[0] not in OBJECTIVES:
        raise error_at(project, "search.prior", f"predicts {', '.join(OBJECTIVES)}, and not the objective's metric")
