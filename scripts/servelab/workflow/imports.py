"""Whether a workflow uses runs that were restored from an archive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servelab.core.errors import ConfigError

KEY = "use_imported_runs"


def use_imported_runs(config: Mapping[str, Any]) -> bool:
    """The key of the configuration, true by default; another value than true or false is a `ConfigError`."""
    value = config.get(KEY, True)
    if value in ("true", "false"):  # as Snakemake leaves it where `--config` gives it
        return bool(value == "true")
    if not isinstance(value, bool):
        raise ConfigError(f"config/config.yaml: {KEY}: must be true or false (found {value!s:.60})")
    return value


def import_option(use_imported: bool) -> str:
    """The option of `measure.py` for it."""
    return "" if use_imported else "--measure-imported"
