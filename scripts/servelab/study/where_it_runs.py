"""What a study says of where an engine runs: only what already runs needs no environment and no device here."""

from __future__ import annotations

from servelab.core.errors import ConfigError
from servelab.engines.adapters import Engine
from servelab.engines.endpoint import NOT_KNOWN
from servelab.engines.runtimes import RUNTIMES, HostRuntime
from servelab.machine.devices import DEVICES
from servelab.machine.devices.elsewhere import Elsewhere
from servelab.study.study import Study


def wrong_place(study: Study, alias: str, engine: Engine) -> tuple[str, str] | None:
    """Key and reason of what does not fit an engine of the study; None if all does."""
    entry, device = study.engines[alias], study.hardware.device
    if engine.already_runs != (entry.runtime == "none"):
        fix = "`runtime: none`, as nothing starts it" if engine.already_runs else "another; nothing would start it"
        return f"engines.{alias}.runtime", f"engine {engine.name} needs {fix}"
    if engine.already_runs and entry.version != NOT_KNOWN:
        fix = f"write `{NOT_KNOWN}`; the argument `state` is for your own name of what runs there"
        return f"engines.{alias}.version", f"that of a server that already runs is not known: {fix}"
    if isinstance(DEVICES.get(device), Elsewhere) and not engine.already_runs:
        return "hardware.device", f"engine {engine.name} is started on this machine, so its device is not `{device}`"
    return _wrong_nodes(study, alias, engine)


def _wrong_nodes(study: Study, alias: str, engine: Engine) -> tuple[str, str] | None:
    entry = study.engines[alias]
    if study.hardware.nodes == 1:
        return None
    try:
        engine.check_nodes(entry.version)
    except ConfigError as error:
        return "hardware.nodes", str(error)
    if not isinstance(RUNTIMES.get(entry.runtime), HostRuntime):
        wrong = f"`{entry.runtime}` starts a server on one node only, and hardware.nodes is {study.hardware.nodes}"
        return f"engines.{alias}.runtime", f"{wrong}; use `venv` or `host`, also inside a job's own container"
    return None
