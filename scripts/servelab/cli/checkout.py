"""Where a command works: a checkout of Servelab, or a folder of studies that a checkout's code runs."""

from __future__ import annotations

from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.core.files import CHECKOUT

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
    """Where a command runs: the checkout or the folder of studies around the current folder, else that folder itself.

    `ConfigError` outside a checkout if the package is in none: then there is no workflow to run.
    """
    here = Path.cwd()
    found = find_studies(here) or here
    if not is_checkout(found) and not is_checkout(CHECKOUT):
        raise ConfigError(f"{here}: not inside a checkout of Servelab, and the `servelab` that runs is of none either")
    return found
