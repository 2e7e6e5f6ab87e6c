"""Locks of engines and load clients, resolved as of their release: no package in one is newer than the release is.

A package that came later may fit a release's bounds and still break it, as transformers 5 does vLLM 0.11.0.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import Field, RootModel
from uv import find_uv_bin

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import own_or_shipped, replacing
from servelab.core.registry import nearest
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import read_yaml

AFTER_RELEASE = timedelta(days=1)
"""Files that appear within a day of a release's first file belong to it: its other wheels, its kernel packages."""

_PYTHON = "3.11"
_OLDEST_GLIBC = (2, 31)
"""Wheels may ask for this one, or for the one that the release's own wheel asks for."""
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_x86_64")
_JSON = "application/vnd.pypi.simple.v1+json"
_LEFT_OUT = "left_out.txt"
"""A file of overrides: each requirement of a package that is left out holds nowhere."""


class Recipe(Strict):
    """An entry of `envs/recipes.yaml`."""

    packages: list[str] = Field(min_length=1, description="Packages; the first gets the version.")
    torch: Literal["cpu"] | None = Field(None, description="`cpu`: PyTorch's builds for a CPU.")
    left_out: list[str] = Field([], description="Packages that are not resolved, nor what only they need.")

    def requirements(self, version: str) -> list[str]:
        """The requirements that are resolved."""
        return [f"{self.packages[0]}=={version}", *self.packages[1:]]

    @property
    def project(self) -> str:
        """The package that has the version, without extras."""
        return self.packages[0].partition("[")[0]


class _Recipes(RootModel[dict[str, Recipe]]):
    pass


@dataclass(frozen=True)
class Release:
    """A release of a package on an index."""

    appeared: datetime
    """When its first file did, in UTC."""
    glibc: tuple[int, int]
    """The oldest that its wheels for Linux on x86-64 ask for; (0, 0) if they ask for none."""


def read_recipe(file: Path, name: str) -> Recipe:
    """The recipe of an engine or a load client; `ConfigError` if there is none."""
    try:
        recipes = _Recipes.model_validate(read_yaml(file)).root
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    if name not in recipes:
        raise ConfigError(f"{file} has no recipe `{name}`{nearest(name, list(recipes))}")
    return recipes[name]


def package_index(variables: Mapping[str, str] = os.environ) -> str:
    """The address of the package index, as set for uv or pip."""
    chosen = variables.get("UV_DEFAULT_INDEX") or variables.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    return chosen.rstrip("/")


def index_and_package(recipe: str) -> tuple[str, str]:
    """The package index, and the package there that has the version of a recipe."""
    return package_index(), read_recipe(own_or_shipped(Path(), "envs/recipes.yaml"), recipe).project


def releases_between(index: str, project: str, first: str, last: str) -> list[str]:
    """Releases of a package from `first` to `last`, both included, in order; no others that are for trial only."""
    low, high = Version(first), Version(last)
    chosen = {each for each in _versions(files_of(index, project)) if low < each < high and not each.is_prerelease}
    return [str(each) for each in sorted(chosen | {low, high})]


def newest_release(index: str, project: str) -> str:
    """The newest release of a package that is for use and was not withdrawn; `ServelabError` if there is none."""
    listed = [file for file in files_of(index, project) if not file.get("yanked")]
    if found := [each for each in _versions(listed) if not each.is_prerelease]:
        return str(max(found))
    raise ServelabError(f"{index} lists no release of {project}")


def files_of(index: str, project: str) -> list[dict[str, Any]]:
    """Files of a package, as an index lists them."""
    import httpx  # here: it takes a tenth of a workflow's start

    try:
        answer = httpx.get(f"{index}/{project}/", headers={"Accept": _JSON}, follow_redirects=True, timeout=60)
        answer.raise_for_status()
        return list(answer.json()["files"])
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise ServelabError(f"{index} does not list {project} as JSON ({error}); give the date with AS_OF=") from error


def find_release(listed: list[dict[str, Any]], project: str, version: str) -> Release:
    """A release among a package's files on an index; `ConfigError` if it is not there or has no dates."""
    wanted = Version(version)
    files = [file for file in listed if _version_of(file["filename"]) == wanted]
    if not files:
        found = ", ".join(map(str, sorted(_versions(listed))[-3:]))
        raise ConfigError(f"the package index has no {project} {version}; its newest are {found}")
    dates = [datetime.fromisoformat(file["upload-time"]) for file in files if file.get("upload-time")]
    if not dates:
        raise ConfigError(f"the index does not date its files of {project} {version}; give it with AS_OF=2025-10-05")
    asked = [tuple(map(int, found)) for file in files for found in _GLIBC.findall(file["filename"])]
    return Release(min(dates).astimezone(UTC), min(((major, minor) for major, minor in asked), default=(0, 0)))


def as_of(release: Release) -> datetime:
    """Nothing that appeared later is in the release's lock."""
    return (release.appeared + AFTER_RELEASE).replace(microsecond=0)


def uv_command(recipe: Recipe, cutoff: datetime, glibc: tuple[int, int], index: str, wheels: str) -> list[str]:
    """uv's command without input and output; `wheels` names a folder or page with PyTorch's CPU builds, or is empty."""
    major, minor = max(glibc, _OLDEST_GLIBC)
    command = [find_uv_bin(), "pip", "compile", "--no-config", "--quiet", "--generate-hashes", "--only-binary", ":all:"]
    command += ["--python-version", _PYTHON, "--python-platform", f"x86_64-manylinux_{major}_{minor}"]
    command += ["--default-index", index, "--exclude-newer", cutoff.isoformat()]
    if recipe.torch and wheels:
        command += ["--find-links", wheels]
    elif recipe.torch:  # PyTorch's own index does not date its files
        command += ["--torch-backend", recipe.torch, "--exclude-newer-package", "torch=false"]
    return [*command, "--override", _LEFT_OUT] if recipe.left_out else command


def write_lock(name: str, version: str, lock: Path, command: list[str], recipe: Recipe, cutoff: datetime) -> None:
    """Resolves a recipe and writes its lock, whatever lock is there; `ServelabError` if there is no solution."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / f"{name}-{version}.in"
        asked.write_text("".join(f"{line}\n" for line in recipe.requirements(version)), encoding="utf-8")
        made = asked.with_suffix(".txt")
        nowhere = "".join(f"{package} ; python_version < '3'\n" for package in recipe.left_out)
        (Path(folder) / _LEFT_OUT).write_text(nowhere, encoding="utf-8")
        # the folder is uv's own, so that the lock's comments name the file without it
        full = [*command, "--no-header", asked.name, "--output-file", made.name]
        done = subprocess.run(full, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServelabError(f"uv cannot solve {name} {version} as of {cutoff:%Y-%m-%d}:\n{done.stderr.strip()}")
        text = made.read_text(encoding="utf-8")
    with replacing(lock) as temporary:
        temporary.write_text(header(name, version, cutoff) + text, encoding="utf-8")


def header(name: str, version: str, cutoff: datetime) -> str:
    """The first lines of a lock: how to make it again, and the date that no package in it is newer than."""
    return (
        f"# Made by `make lock ENGINE={name} VERSION={version}`.\n# As of {cutoff:%Y-%m-%dT%H:%M:%SZ}: nothing newer.\n"
    )


def _versions(listed: list[dict[str, Any]]) -> set[Version]:
    return {each for file in listed if (each := _version_of(file["filename"])) is not None}


def _version_of(filename: str) -> Version | None:
    parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
    try:
        return parse(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
