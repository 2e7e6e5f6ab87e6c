"""The key that signs what a workflow measures and archives."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from servelab.core.errors import ConfigError
from servelab.core.ssh_signature import SigningKey, check_key
from servelab.core.yaml_file import describe_validation_error
from servelab.study.site import Site

CONFIG = Path("config/config.yaml")


class Signing:
    """The key `sign` of the configuration, else of the site; without either nothing is signed.

    A mistake in it is a `ConfigError`.
    """

    def __init__(self, config: Mapping[str, Any], site: Site | None) -> None:
        self.key: SigningKey | None = site.sign if site else None
        if "sign" in config:
            try:
                self.key = SigningKey.model_validate(config["sign"])
            except ValidationError as error:
                raise ConfigError(describe_validation_error(error, f"{CONFIG}: sign", SigningKey)) from None

    @property
    def option(self) -> str:
        """Option of the scripts that sign, quoted for a shell; empty if nothing is signed."""
        return f"--sign {shlex.quote(self.key.model_dump_json())}" if self.key else ""

    def check(self, *, is_here: bool) -> None:
        """Raises `ConfigError` if the key cannot sign; jobs that do not run here (`is_here`) have no agent."""
        if self.key:
            check_key(self.key, with_agent=is_here)
