"""The digest that a container image's tag names now, asked of its registry, and the file that pins it.

Source of the requests: the OCI distribution specification 1.1, and Docker's page on token authentication. A registry
that wants a token gives one to anybody for a public image; a private one is refused here.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import replacing
from servelab.core.yaml_file import read_config
from servelab.engines.runtimes.containers import ImageDescription

if TYPE_CHECKING:
    import httpx

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
