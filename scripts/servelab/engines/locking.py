"""Locks of engines and load clients, resolved as of their release: no package in one is newer than the release is.

What a release was tested with is what existed when it appeared. A package that came later may fit its stated bounds and
still break it: vLLM 0.11.0 accepts transformers 5, which appeared after it, and fails on its tokenizers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import Field, RootModel

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import replacing
from servelab.core.registry import nearest
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import read_config, read_yaml
from servelab.engines.runtimes.containers import ImageDescription

if TYPE_CHECKING:
    import httpx


AFTER_RELEASE = timedelta(days=1)
"""What appears within a day of a release's first file belongs to it: its other wheels, its kernel packages."""

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
        """What is resolved."""
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


def find_release(index: str, project: str, version: str) -> Release:
    """Looks a release up on an index; `ConfigError` if it is not there or the index has no dates."""
    return release_in(_files_of(index, project), project, version)


def releases_between(index: str, project: str, first: str, last: str) -> list[str]:
    """Releases of a package from `first` to `last`, both included, in order; no others that are for trial only."""
    low, high = Version(first), Version(last)
    found = {each for file in _files_of(index, project) if (each := _version_of(file["filename"])) is not None}
    chosen = {each for each in found if low < each < high and not each.is_prerelease} | {low, high}
    return [str(each) for each in sorted(chosen)]


def _files_of(index: str, project: str) -> list[dict[str, Any]]:
    """Files of a package, as an index lists them."""
    import httpx  # here: it takes a tenth of a workflow's start

    try:
        answer = httpx.get(f"{index}/{project}/", headers={"Accept": _JSON}, follow_redirects=True, timeout=60)
        answer.raise_for_status()
        listed: list[dict[str, Any]] = answer.json()["files"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise ServelabError(f"{index} does not list {project} as JSON ({error}); give the date with AS_OF=") from error
    return listed


def release_in(listed: list[dict[str, Any]], project: str, version: str) -> Release:
    """A release among the files that an index lists of a package; see `find_release`."""
    wanted = Version(version)
    files = [file for file in listed if _version_of(file["filename"]) == wanted]
    if not files:
        found = sorted({each for file in listed if (each := _version_of(file["filename"])) is not None})
        raise ConfigError(
            f"the package index has no {project} {version}; its newest are {', '.join(map(str, found[-3:]))}"
        )
    dates = [datetime.fromisoformat(file["upload-time"]) for file in files if file.get("upload-time")]
    if not dates:
        raise ConfigError(
            f"the package index does not date its files of {project} {version}; give it with AS_OF=2025-10-05"
        )
    asked = [tuple(map(int, found)) for file in files for found in _GLIBC.findall(file["filename"])]
    return Release(min(dates).astimezone(UTC), min(((major, minor) for major, minor in asked), default=(0, 0)))


def as_of(release: Release) -> datetime:
    """Nothing that appeared later is in the release's lock."""
    return (release.appeared + AFTER_RELEASE).replace(microsecond=0)


def uv_command(
    uv: Path, recipe: Recipe, cutoff: datetime, glibc: tuple[int, int], index: str, wheels: str
) -> list[str]:
    """uv's command without input and output; `wheels` names a folder or page with PyTorch's CPU builds, or is empty."""
    major, minor = max(glibc, _OLDEST_GLIBC)
    command = [str(uv), "pip", "compile", "--no-config", "--quiet", "--python-version", _PYTHON, "--generate-hashes"]
    command += ["--only-binary", ":all:", "--python-platform", f"x86_64-manylinux_{major}_{minor}"]
    command += ["--default-index", index, "--exclude-newer", cutoff.isoformat()]
    if recipe.torch and wheels:
        command += ["--find-links", wheels]
    elif recipe.torch:  # PyTorch's own index does not date its files
        command += ["--torch-backend", recipe.torch, "--exclude-newer-package", "torch=false"]
    return [*command, "--override", _LEFT_OUT] if recipe.left_out else command


def write_lock(name: str, version: str, lock: Path, command: list[str], recipe: Recipe, cutoff: datetime) -> None:
    """Resolves a recipe and writes its lock, and no other file; `ServelabError` if there is no solution.

    An earlier lock of this name does not matter: uv would prefer its versions.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / f"{name}-{version}.in"
        asked.write_text("".join(f"{line}\n" for line in recipe.requirements(version)), encoding="utf-8")
        made = asked.with_suffix(".txt")
        nowhere = "".join(f"{package} ; python_version < '3'\n" for package in recipe.left_out)
        (Path(folder) / _LEFT_OUT).write_text(nowhere, encoding="utf-8")
        # the folder is uv's own, so that the lock's comments name the file without it
        full = [*command, "--no-header", asked.name, "--output-file", made.name]
        try:
            done = subprocess.run(full, cwd=folder, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ConfigError(f"uv cannot be started ({command[0]}: {error.strerror}); see CONTRIBUTING.md") from error
        if done.returncode:
            raise ServelabError(
                f"uv finds no solution for {name} {version} as of {cutoff:%Y-%m-%d}:\n{done.stderr.strip()}"
            )
        text = made.read_text(encoding="utf-8")
    with replacing(lock) as temporary:
        temporary.write_text(header(name, version, cutoff) + text, encoding="utf-8")


def header(name: str, version: str, cutoff: datetime) -> str:
    """The first lines of a lock: how to make it again, and the date that no package in it is newer than."""
    return (
        f"# Made by `make lock ENGINE={name} VERSION={version}`.\n# As of {cutoff:%Y-%m-%dT%H:%M:%SZ}: nothing newer.\n"
    )


def _version_of(filename: str) -> Version | None:
    parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
    try:
        return parse(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


PLATFORM = "linux/amd64"

_REFERENCE = re.compile(
    r"(?P<registry>localhost(?::\d+)?|[\w-]+(?:\.[\w-]+)+(?::\d+)?)/(?P<repository>[a-z0-9._/-]+):(?P<tag>[\w.-]{1,128})"
)
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_LOOPBACK = ("localhost", "127.0.0.1")
_DOCKER_HUB = ("docker.io", "registry-1.docker.io")
"""Docker Hub's name in references, and the host that answers."""
_HEADER = ("# Pinned by", "# What the tag named on")
"""How the two comment lines above `image` begin."""


@dataclass(frozen=True)
class Reference:
    """A tag of a repository, with its registry: `docker.io/lmsysorg/sglang:v0.5.9`."""

    registry: str
    repository: str
    tag: str

    @property
    def url(self) -> str:
        """Where the registry answers for the tag; without TLS on the loopback alone."""
        host = _DOCKER_HUB[1] if self.registry == _DOCKER_HUB[0] else self.registry
        scheme = "http" if host.partition(":")[0] in _LOOPBACK else "https"
        return f"{scheme}://{host}/v2/{self.repository}/manifests/{self.tag}"

    @property
    def name(self) -> str:
        """What the image is called without its owner, as `tensorrt-llm-release` of nvidia/tensorrt-llm/release."""
        return self.repository.partition("/")[2].replace("/", "-") or self.repository

    def at(self, digest: str) -> str:
        """The name by which a container program finds this very image."""
        return f"{self.registry}/{self.repository}@{digest}"

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}:{self.tag}"


class Pinned(NamedTuple):
    """What a tag names now."""

    digest: str
    platforms: tuple[str, ...]
    """As `linux/amd64`; empty if the registry holds one image that does not say so in its manifest."""


def parse_reference(text: str) -> Reference:
    """`ConfigError` unless it has registry, repository and tag: what is left out means different things to programs."""
    found = _REFERENCE.fullmatch(text)
    if not found:
        raise ConfigError(f"{text}: write registry, name and tag, as docker.io/lmsysorg/sglang:v0.5.9")
    reference = Reference(**found.groupdict())
    if reference.registry == _DOCKER_HUB[0] and "/" not in reference.repository:
        return Reference(reference.registry, f"library/{reference.repository}", reference.tag)
    return reference


def find_digest(reference: Reference, platform: str = PLATFORM) -> Pinned:
    """Asks the registry; `ConfigError` if it has no such tag, or not for `platform`."""
    import httpx  # here: it takes a tenth of a workflow's start

    try:
        with httpx.Client(follow_redirects=True, timeout=60) as client:
            answer = _asked(client, reference)
    except httpx.HTTPError as error:
        raise ServelabError(f"{reference.registry} does not answer: {type(error).__name__} {error}") from error
    if answer.status_code in (401, 403):
        raise ConfigError(f"{reference}: the registry gives it to nobody without an account; check the name")
    if answer.status_code == 404:
        raise ConfigError(f"{reference}: the registry has no such image or tag")
    if answer.is_error:
        raise ServelabError(f"{reference}: the registry answers {answer.status_code}")
    digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
    stated = answer.headers.get("Docker-Content-Digest", digest)
    if stated != digest:
        raise ServelabError(f"{reference}: the registry says {stated}, what it sends has {digest}")
    try:
        entries = [each["platform"] for each in answer.json().get("manifests", []) if "platform" in each]
        found = {f"{each['os']}/{each['architecture']}" for each in entries}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ServelabError(f"{reference}: what the registry sends is no manifest") from None
    known = tuple(sorted(each for each in found if not each.startswith("unknown")))  # attestations, which nobody runs
    if known and platform not in known:
        raise ConfigError(f"{reference} is for {', '.join(known)}; not for {platform}")
    return Pinned(digest, known)


def _asked(client: httpx.Client, reference: Reference) -> httpx.Response:
    """The last answer, with a token if the registry asks for one."""
    headers = {"Accept": ", ".join((*_INDEXES, *_MANIFESTS))}
    answer = client.get(reference.url, headers=headers)
    kind, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
    asked = dict(_PARAMETER.findall(rest))
    realm = urlsplit(asked.pop("realm", ""))
    is_safe = realm.scheme == "https" or realm.hostname in _LOOPBACK
    if answer.status_code != 401 or kind.lower() != "bearer" or not is_safe:
        return answer
    asked.setdefault("scope", f"repository:{reference.repository}:pull")
    given = client.get(realm.geturl(), params=asked)
    if given.is_error:
        return given
    try:
        token = given.json().get("token") or given.json()["access_token"]
    except (ValueError, KeyError, AttributeError):
        raise ServelabError(f"{realm.hostname} gives no token for {reference}") from None
    return client.get(reference.url, headers={**headers, "Authorization": f"Bearer {token}"})


def write_description(file: Path, reference: Reference, pinned: Pinned, version: str, today: date) -> str | None:
    """Writes the image's file, or sets image and version in one that is there; returns the image that it named before.

    What else is in it stays: command, variables, flags and comments.
    """
    image, before, rest = reference.at(pinned.digest), None, ""
    if file.exists():
        before = read_config(file, ImageDescription).image
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        rest = "".join(line for line in lines if not line.startswith(("image:", "version:", *_HEADER)))
    holds = f"; it holds {', '.join(pinned.platforms)}" if pinned.platforms else ""
    header = f"{_HEADER[0]} scripts/pin_image.py: {reference}\n{_HEADER[1]} {today:%Y-%m-%d}{holds}.\n"
    with replacing(file) as temporary:
        temporary.write_text(f"{header}image: {image}\nversion: {json.dumps(version)}\n{rest}", encoding="utf-8")
    return before
