"""Where a command works: a checkout of Servelab, or a folder of studies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from servelab.core.errors import ConfigError
from servelab.core.files import own_or_shipped
from servelab.core.registry import nearest
from servelab.core.yaml_file import read_yaml

if TYPE_CHECKING:
    from servelab.study.project import Project

SNAKEFILE = Path("Snakefile")
COMMAND = Path("scripts/servelab_command.py")
"""Program of a checkout; a folder that has it and a `Snakefile` is a checkout."""
CONFIG = Path("config/config.yaml")
"""A folder that has it and `STUDIES` is a folder of studies."""
STUDIES = Path("config/studies")


def is_checkout(folder: Path) -> bool:
    """Whether a folder is the top of a checkout."""
    return (folder / SNAKEFILE).is_file() and (folder / COMMAND).is_file()


def find_checkout(folder: Path) -> Path | None:
    """The innermost checkout of Servelab that contains a folder; None if there is none."""
    return next((each for each in (folder, *folder.parents) if is_checkout(each)), None)


def find_studies(folder: Path) -> Path | None:
    """The innermost checkout or folder of studies that contains a folder; None if there is none."""
    for each in (folder, *folder.parents):
        if is_checkout(each) or ((each / CONFIG).is_file() and (each / STUDIES).is_dir()):
            return each
    return None


def this_place() -> Path:
    """The checkout or folder of studies around the current folder; else the current folder."""
    here = Path.cwd()
    return find_studies(here) or here


def study_names(root: Path) -> list[str]:
    """Names of the live studies of a checkout or a folder of studies."""
    return sorted(file.stem for file in (root / STUDIES).glob("*.yaml"))


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """`ConfigError` for a name that is no study's, and where there is no study at all."""
    if not known:
        raise ConfigError(f"{Path.cwd() / STUDIES}: no study here; begin one: servelab tune NAME -- COMMAND")
    for name in names:
        if name not in known:
            raise ConfigError(f"config/studies/{name}.yaml: no such study{nearest(name, list(known))}")


def named_studies(names: Sequence[str]) -> Iterator[Project]:
    """These studies of the current folder; without names, those of config/config.yaml."""
    from servelab.search.project import load_project  # takes a second, and most commands need no project

    check_names(names, study_names(Path()))
    for name in names or read_yaml(own_or_shipped(Path(), CONFIG)).get("studies") or []:
        yield load_project(STUDIES / f"{name}.yaml", Path())
