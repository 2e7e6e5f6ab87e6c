"""A server that already runs: where it is, what it says about itself, and what it cannot say."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field

from servelab.core.credentials import key_of, without_keys
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
_PATH, _QUERY = re.compile(r"(/[\w.~%-]+)*", re.ASCII), re.compile(r"api-version=[\w.-]+", re.ASCII)
_CALL = re.compile(r"/(chat/completions|completions|models)/?$")
_NO_LIST = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LIMITS = ("max_model_len", "context_length", "max_context_length", "n_ctx", "n_ctx_train")
"""Names that servers have for the longest sequence, in order of trust."""


@dataclass(frozen=True)
class Address:
    """Where a study's server is."""

    url: str
    """As of `checked_url`."""
    model: str | None
    """Its model in requests; None: the study's name for the model."""
    key_variable: str | None
    """Name of the environment variable that has its key; None if it needs none."""
    header_variables: Mapping[str, str] = field(default_factory=dict)
    """Further headers → the variable that has the value."""
    insecure: bool = False
    """Whether its certificate is not checked."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request; `ConfigError` if a variable has no value."""
        return sent_headers(self.key_variable, self.header_variables)

    @property
    def needs_own_client(self) -> bool:
        """Whether only Servelab's load client reaches it: by TLS, with headers, or below a path."""
        parts = urlsplit(self.url)
        return bool(self.key_variable or self.header_variables or parts.scheme != "http" or parts.path or parts.query)

    @property
    def port(self) -> int | None:
        """Its port if it is on this machine, by a loopback address; None otherwise."""
        parts = urlsplit(self.url)
        return parts.port if parts.hostname in LOOPBACK else None


class Asked(JsonPart):
    """The answer of the server."""

    url: str = Field(description="Its address; without a path, the API is at `/v1`.")
    model: str = Field(description="The model that requests name.")
    other_models: list[str] = Field([], description="Further models that it lists.")
    longest_tokens: int | None = Field(None, description="Longest sequence, as /v1/models has it; null if it does not.")
    version: str | None = Field(None, description="What /version answers; null if nothing.")
    software: str | None = Field(None, description="The header `Server` of its answer; null if it has none.")
    lists_models: bool = Field(True, description="Whether it has a list of models; else the name is as given.")
    insecure: bool = Field(False, description="Whether its TLS certificate was not checked.")


def checked_url(text: str) -> str:
    """An address with its port, without `/v1` if that is all of its path, else `ConfigError`.

    Another path is the root of the API (`/openai/v1`), and may be followed by `?api-version=…`.
    """
    url = urlsplit(text if "://" in text else f"http://{text}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"{text}: not the address of a server; give http://host:port")
    if url.username or url.password or (url.query and not _QUERY.fullmatch(url.query)):
        raise ConfigError("the address has credentials or a query in it; give a key by its variable (api-key-env)")
    path = _CALL.sub("", url.path).rstrip("/")
    if not _PATH.fullmatch(path):
        raise ConfigError(f"{text}: not the path of an API; give http://host:port or http://host:port/path/v1")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        raise ConfigError(f"{text}: not a port; give http://host:port") from None
    return f"{url.scheme}://{host}:{port}{'' if path == '/v1' else path}{url.query and f'?{url.query}'}"


def api_url(base_url: str, call: str) -> str:
    """Where a call such as `chat/completions` is, of a server at an address of `checked_url`."""
    url = urlsplit(base_url)
    return urlunsplit(url._replace(path=f"{url.path.rstrip('/') or '/v1'}/{call}"))


def sent_headers(key_variable: str | None, header_variables: Mapping[str, str]) -> dict[str, str]:
    """Headers with the values of environment variables; `ConfigError` if one has none."""
    key = key_of(key_variable)
    more = {name: str(key_of(variable)) for name, variable in header_variables.items()}
    return ({"Authorization": f"Bearer {key}"} if key else {}) | more


def trusted(base_url: str, insecure: bool) -> ssl.SSLContext | None:
    """Certificates that count, those of the system or of SSL_CERT_FILE; None if the server is reached without TLS."""
    if urlsplit(base_url).scheme != "https":
        return None
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def origin(url: str) -> tuple[str, str]:
    """Scheme, and host with port, to which a key belongs."""
    scheme, host = _ORIGIN.findall(url.lower())[0]
    return scheme or "http", host.removesuffix(":443" if scheme == "https" else ":80")


def check_key(url: str, variable: str | None, over_http: bool, fix: str) -> None:
    """`ConfigError` if a key would be sent to another machine in clear text, which nobody asked for."""
    is_open = url.startswith("http://") and urlsplit(url).hostname not in LOOPBACK
    if variable is not None and is_open and not over_http:
        raise ConfigError(f"{url}: the key would be sent in clear text; use https, or allow it: {fix}")


def ask(address: Address, model: str | None = None) -> Asked:
    """Facts that a server tells of itself; `ServelabError` if it does not answer, `ConfigError` if it lacks the model.

    A model that is given is believed of a server without a list of models.
    """
    import httpx  # here: it takes a tenth of each script's start

    url, headers, models = address.url, address.headers, api_url(address.url, "models")
    alone = httpx.Limits(max_keepalive_connections=0)  # a server may close a connection just as it is used again
    with httpx.Client(
        headers=headers,
        timeout=_TIMEOUT_S,
        trust_env=False,
        limits=alone,
        verify=trusted(url, address.insecure) or True,
    ) as client:
        try:
            answer = client.get(models)
        except httpx.HTTPError as error:
            raise ServelabError(f"{models}: no answer: {error or type(error).__name__}") from None
        is_list = model is None or answer.status_code not in _NO_LIST
        entries = _models(answer, models, headers) if is_list else [{"id": model}]
        listed = {str(entry["id"]): entry for entry in entries}
        if not listed:
            raise ServelabError(f"{models}: lists no model")
        if model is not None and model not in listed:
            raise ConfigError(f"{url}: the server has no model `{model}`{nearest(model, list(listed))}")
        chosen = model or next(iter(listed))
        return Asked(
            url=url,
            model=chosen,
            other_models=[name for name in listed if name != chosen],
            longest_tokens=_longest(listed[chosen]),
            version=_version(client, urlunsplit(urlsplit(url)._replace(path="/version"))),
            software=answer.headers.get("server"),
            lists_models=is_list,
            insecure=address.insecure,
        )


def not_known(asked: Asked, caches: str) -> Iterator[tuple[str, str]]:
    """The facts that nobody can know of such a server, and why; `caches` says how its caches are emptied."""
    if asked.version is None:
        said = f"; it calls itself {asked.software}" if asked.software else ""
        yield "its version", f"it does not answer /version{said}"
    if not asked.lists_models:
        yield "its models", "it has no list of models; the model is named as given"
    if asked.insecure:
        yield "whose server it is", "its certificate was not checked"
    yield "its options and hardware", "a server does not say how it was started, nor on what"
    yield "restarts", "whether it was restarted between visits cannot be seen"
    yield "what its caches held", f"caches cannot be emptied; {caches}"
    yield "other users", "requests of others at the same time cannot be seen"


def _models(answer: httpx.Response, url: str, headers: Mapping[str, str]) -> list[dict[str, Any]]:
    """Entries of the list; `ServelabError` if it is none."""
    if (status := answer.status_code) != HTTPStatus.OK:
        hint = "; does it need --api-key-env?" if status in (401, 403) and not headers else ""
        if answer.has_redirect_location:
            hint = f" redirects to {answer.headers['location']}; give the address that it means"
        elif status in _NO_LIST:
            hint = "; give --model if it has no list of models, or the path of its API, as in http://host:port/path/v1"
        said = without_keys(f"{hint} {' '.join(answer.text.split())}", headers.values())[:_MOST_TEXT]
        raise ServelabError(f"{url}: status {status}{said}".rstrip())
    try:
        entries = answer.json()["data"]
        return [entry for entry in entries if isinstance(entry, dict) and "id" in entry]
    except (ValueError, KeyError, TypeError):
        raise ServelabError(f"{url}: not a list of models as OpenAI's API defines it") from None


def _longest(entry: Mapping[str, Any]) -> int | None:
    meta = entry.get("meta")
    for place in (entry, meta if isinstance(meta, dict) else {}):
        for name in _LIMITS:
            if isinstance(value := place.get(name), int) and value > 0:
                return value
    return None


def _version(client: httpx.Client, url: str) -> str | None:
    """The answer of vLLM and others at /version; None for anything else."""
    import httpx

    try:
        answer = client.get(url)
        version = answer.json()["version"] if answer.status_code == HTTPStatus.OK else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None
    return version[:_MOST_TEXT] if isinstance(version, str) else None
