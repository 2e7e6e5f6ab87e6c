"""Which runs of elsewhere a workflow uses: those that were restored, and those of the places in `runs_from`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servelab.archive.run_source import KEY as PLACES
from servelab.core.errors import ConfigError
from servelab.workflow.configuration import read_configuration

if TYPE_CHECKING:
    from servelab.archive.shared_runs import SharedRuns

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


def shared_runs(config: Mapping[str, Any], results: Path, report: Callable[[str], None]) -> SharedRuns | None:
    """The runs of the places in `runs_from`; None if it is empty.

    `report` gets one line per run that cannot be used. Another form, or imported runs that are not to be used, is a
    `ConfigError`.
    """
    sources = read_configuration(config).runs_from
    if not sources:
        return None
    if not use_imported_runs(config):
        raise ConfigError(f"config/config.yaml: {PLACES}: needs {KEY}: true, which is the default")
    from servelab.archive.shared_runs import SharedRuns  # takes half a second, and few studies have such a place

    return SharedRuns(sources, results, Path(".snakemake/shared"), report)
