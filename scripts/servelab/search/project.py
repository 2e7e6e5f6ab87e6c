"""Loads a study with everything it refers to, and checks its search as well."""

from __future__ import annotations

from pathlib import Path

from servelab.engines.options import OPTIONS
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
    search, proof = project.study.search, project.study.proof
    check_name(project, "search.strategy", search.strategy, STRATEGIES.names(), "search strategy")
    outlines(project.study)
    if proof.most_pairs < proof.pairs:
        raise error_at(project, "proof.most_pairs", f"is below `proof.pairs`, {proof.pairs}; raise it")
    valid = {"model": ["base", *project.study.model.variants]}
    valid["engine"] = [project.engine(alias).name for alias in project.study.engines]
    conditions = [*valid, "accelerators", "replicas", "hardware.per_node", *(f"options.{name}" for name in OPTIONS)]
    for position, stage in enumerate(project.study.stages):
        for name, wanted in stage.when.items():
            key = f"stages.{position} ({stage.name}).when"
            check_name(project, key, name, conditions, "condition")
            if name in valid:
                check_name(project, f"{key}.{name}", str(wanted), valid[name], f"{name} of this study")
    if project.study.objective.pareto and (search.strategy == "staged" or search.prior is not None):
        wrong = "`staged` and `prior` know one metric only"
        raise error_at(project, "objective.pareto", f"{wrong}; search with `adaptive` or `grid`, without `prior`")
    if search.prior is not None and search.strategy != "adaptive":
        raise error_at(project, "search.prior", f"{search.strategy} does not use it; search with `adaptive`")
    if search.prior is not None and project.study.objective.metric_and_basis[0] not in OBJECTIVES:
        raise error_at(project, "search.prior", f"predicts {', '.join(OBJECTIVES)}, and not the objective's metric")
