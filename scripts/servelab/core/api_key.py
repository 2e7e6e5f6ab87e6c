"""A server's API key: read from an environment variable by its name, and never written anywhere."""

from __future__ import annotations

import os
from collections.abc import Mapping

from servelab.core.errors import ConfigError


def key_of(variable: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The key in the environment variable; None without a variable, `ConfigError` if it has no key to send."""
    if variable is None:
        return None
    if not (key := environment.get(variable, "").strip()):
        raise ConfigError(f"{variable}: this environment variable is to hold the server's key, and is not set")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{variable}: the value of this environment variable cannot be sent in a header")
    return key


def without_key(text: str, key: str | None) -> str:
    """A text of the server without the key, which a server may repeat."""
    return text.replace(key, "*" * len(key)) if key else text
