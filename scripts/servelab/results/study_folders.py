"""Folders of studies below a results folder, as a user names them on a command line."""

from __future__ import annotations

from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.core.registry import nearest

STUDY_FOLDER = "name of a study with results, or its folder: results/studies/<study>"
"""Help of an argument that `study_folder` reads."""
_KINDS = ("studies", "recorded")


def study_folder(given: Path, results: Path) -> Path:
    """The folder that is given, or that of the study with this name, a live one first; `ConfigError` if neither is."""
    named = [results / kind / given for kind in _KINDS] if len(given.parts) == 1 else []
    for folder in (given, *named):
        if folder.is_dir():
            return folder
    known = [folder.name for kind in _KINDS for folder in results.glob(f"{kind}/*/")]
    raise ConfigError(f"{given}: no such folder, and no study with results has this name{nearest(given.name, known)}")


def finished_studies(results: Path) -> list[Path]:
    """Folders of all studies with a recommendation, by kind and name; `ConfigError` if there is none."""
    found = [file.parent for kind in _KINDS for file in sorted(results.glob(f"{kind}/*/recommended.json"))]
    if not found:
        raise ConfigError(f"{results}: no study is finished; `make status` prints how far each is")
    return found
