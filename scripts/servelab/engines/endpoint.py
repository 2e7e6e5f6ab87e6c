"""A server that already runs: where it is, what it says about itself, and what it cannot say."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import Field

from servelab.core.credentials import without_key
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.files import JsonPart
from servelab.core.registry import nearest

if TYPE_CHECKING:
    import httpx

NOT_KNOWN = "unknown"
"""The version of a server that somebody else started."""
_TIMEOUT_S = 30.0
_MOST_TEXT = 300
_ORIGIN = re.compile(r"(?:(https?)://)?([^/?#]*)")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LIMITS = ("max_model_len", "context_length", "max_context_length", "n_ctx", "n_ctx_train")
"""Names that servers have for the longest sequence, in order of trust."""


@dataclass(frozen=True)
class Address:
    """Where a study's server is."""

    url: str
    """Without `/v1`."""
    model: str | None
    """Its model in requests; None: the study's name for the model."""
    key_variable: str | None
    """Name of the environment variable that has its key; None if it needs none."""

    @property
    def needs_own_client(self) -> bool:
        """Whether it is reached by what only Servelab's load client speaks: TLS, or a key in a header."""
        return self.key_variable is not None or not self.url.startswith("http://")

    @property
    def port(self) -> int | None:
        """Its port if it is on this machine, by a loopback address; None otherwise."""
        parts = urlsplit(self.url)
        return parts.port if parts.hostname in LOOPBACK else None


class Asked(JsonPart):
    """What the server answered."""

    url: str = Field(description="Its address, without `/v1`.")
    model: str = Field(description="The model that requests name.")
    other_models: list[str] = Field([], description="Further models that it lists.")
    longest_tokens: int | None = Field(None, description="Longest sequence, as /v1/models has it; null if it does not.")
    version: str | None = Field(None, description="What /version answers; null if nothing.")
    software: str | None = Field(None, description="The header `Server` of its answer; null if it has none.")


def checked_url(text: str) -> str:
    """`http(s)://host:port` from an address with or without `/v1` and port, else `ConfigError`."""
    url = urlsplit(text if "://" in text else f"http://{text}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"{text}: not the address of a server; give http://host:port")
    if url.username or url.password or url.query:
        raise ConfigError("the address has credentials or a query in it; give a key by its variable (api-key-env)")
    if url.path.rstrip("/") not in ("", "/v1"):
        raise ConfigError(f"{text}: the API must be at /v1; {url.path} cannot be reached")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        raise ConfigError(f"{text}: not a port; give http://host:port") from None
    return f"{url.scheme}://{host}:{port}"


def origin(url: str) -> tuple[str, str]:
    """Scheme, and host with port, to which a key belongs."""
    scheme, host = _ORIGIN.findall(url.lower())[0]
    return scheme or "http", host.removesuffix(":443" if scheme == "https" else ":80")


def check_key(url: str, variable: str | None, over_http: bool, fix: str) -> None:
    """`ConfigError` if a key would be sent to another machine in clear text, which nobody asked for."""
    is_open = url.startswith("http://") and urlsplit(url).hostname not in LOOPBACK
    if variable is not None and is_open and not over_http:
        raise ConfigError(f"{url}: the key in {variable} would be sent in clear text; use https, or allow it: {fix}")


def ask(url: str, key: str | None, model: str | None = None) -> Asked:
    """What a server says about itself; `ServelabError` if it does not answer, `ConfigError` if it has no such model."""
    import httpx  # here: it takes a tenth of each script's start

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    alone = httpx.Limits(max_keepalive_connections=0)  # a server may close a connection just as it is used again
    with httpx.Client(
        base_url=url,
        headers=headers,
        timeout=_TIMEOUT_S,
        trust_env=False,
        limits=alone,
        verify=ssl.create_default_context(),
    ) as client:
        try:
            answer = client.get("/v1/models")
        except httpx.HTTPError as error:
            raise ServelabError(f"{url}/v1/models: no answer: {error or type(error).__name__}") from None
        listed = {str(entry["id"]): entry for entry in _models(answer, url, key)}
        if not listed:
            raise ServelabError(f"{url}/v1/models: lists no model")
        if model is not None and model not in listed:
            raise ConfigError(f"{url}: the server has no model `{model}`{nearest(model, list(listed))}")
        chosen = model or next(iter(listed))
        return Asked(
            url=url,
            model=chosen,
            other_models=[name for name in listed if name != chosen],
            longest_tokens=_longest(listed[chosen]),
            version=_version(client),
            software=answer.headers.get("server"),
        )


def not_known(asked: Asked, caches: str) -> Iterator[tuple[str, str]]:
    """What nobody can know of such a server, and why; `caches` is what is known of its caches."""
    if asked.version is None:
        said = f"; it calls itself {asked.software}" if asked.software else ""
        yield "its version", f"it does not answer /version{said}"
    yield "its options and hardware", "a server does not say how it was started, nor on what"
    yield "restarts", "whether it was restarted between visits cannot be seen"
    yield "what its caches held", f"caches cannot be emptied; {caches}"
    yield "other users", "requests of others at the same time cannot be seen"


def _models(answer: httpx.Response, url: str, key: str | None) -> list[dict[str, Any]]:
    """Entries of the list; `ServelabError` if it is none."""
    if answer.status_code != HTTPStatus.OK:
        hint = "; does it need --api-key-env?" if answer.status_code in (401, 403) and not key else ""
        said = without_key(" ".join(answer.text.split()), key)[:_MOST_TEXT]
        raise ServelabError(f"{url}/v1/models: status {answer.status_code}{hint} {said}".rstrip())
    try:
        entries = answer.json()["data"]
        return [entry for entry in entries if isinstance(entry, dict) and "id" in entry]
    except (ValueError, KeyError, TypeError):
        raise ServelabError(f"{url}/v1/models: not a list of models as OpenAI's API defines it") from None


def _longest(entry: Mapping[str, Any]) -> int | None:
    meta = entry.get("meta")
    for place in (entry, meta if isinstance(meta, dict) else {}):
        for name in _LIMITS:
            if isinstance(value := place.get(name), int) and value > 0:
                return value
    return None


def _version(client: httpx.Client) -> str | None:
    """What vLLM and others answer at /version; None for anything else."""
    import httpx

    try:
        answer = client.get("/version")
        version = answer.json()["version"] if answer.status_code == HTTPStatus.OK else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None
    return version[:_MOST_TEXT] if isinstance(version, str) else None
