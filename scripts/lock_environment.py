"""Resolves the lock of one engine or load client as of its release; writes one file, see envs/recipes.yaml."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.engines import locking


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="entry of envs/recipes.yaml")
    parser.add_argument("--version", required=True, help="its release")
    parser.add_argument("--recipes", type=Path, default=Path("envs/recipes.yaml"))
    parser.add_argument("--wheels", default="", help="folder or page of PyTorch's CPU builds; default: its index")
    parser.add_argument("--as-of", default="", help="take nothing newer, as 2025-10-05; default: a day after release")
    parser.add_argument("--lock", default="", help="file to write; default: envs/<name>-<version>.lock.txt")
    arguments = parser.parse_args()

    recipe = locking.read_recipe(arguments.recipes, arguments.name)
    index = locking.package_index()
    release = locking.find_release(locking.files_of(index, recipe.project), recipe.project, arguments.version)
    cutoff = given_date(arguments.as_of) if arguments.as_of else locking.as_of(release)
    command = locking.uv_command(recipe, cutoff, release.glibc, index, arguments.wheels)
    lock = Path(arguments.lock or arguments.recipes.parent / f"{arguments.name}-{arguments.version}.lock.txt")
    locking.write_lock(arguments.name, arguments.version, lock, command, recipe, cutoff)
    print(f"{lock}: as of {cutoff:%Y-%m-%d}; name it in a study: {{version: {arguments.version}, lock: {lock}}}")


def given_date(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise ConfigError(f"AS_OF={text}: write a date as 2025-10-05") from None


if __name__ == "__main__":
    run(main)
