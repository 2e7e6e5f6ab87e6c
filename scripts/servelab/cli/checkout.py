"""A checkout of Servelab, found from a folder inside it."""

from __future__ import annotations

from pathlib import Path

from servelab.core.errors import ConfigError

COMMAND = Path("scripts/servelab_command.py")
"""What a checkout is recognised by, beside its `Snakefile`, and what is run of it."""


def find_checkout(folder: Path) -> Path | None:
    """The innermost checkout of Servelab that contains a folder; None if there is none."""
    for each in (folder, *folder.parents):
        if (each / "Snakefile").is_file() and (each / COMMAND).is_file():
            return each
    return None


def this_checkout() -> Path:
    """The checkout that the current folder is in; `ConfigError` outside one."""
    found = find_checkout(Path.cwd())
    if found is None:
        raise ConfigError(f"{Path.cwd()}: not inside a checkout of Servelab (a folder with Snakefile and {COMMAND})")
    return found
