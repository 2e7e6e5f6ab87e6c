"""Clients of other tools, which only an export needs."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from servelab.core.errors import ConfigError


def client(module: str) -> ModuleType:
    """A module of a client; `ConfigError` with the command that installs it if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed here; use `make export`, which installs it") from None
