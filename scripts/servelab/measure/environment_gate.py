"""Checks an engine's environment before its first measurement: a fault of the environment is no result of a candidate.

The checks themselves run in the environment (`servelab.engines.environment_probe`), without a device.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from servelab.assets.pinned_file import StoredModel
from servelab.core.credentials import shell_variables
from servelab.core.errors import ConfigError, Outage
from servelab.core.files import JsonFile, JsonPart
from servelab.core.identity import content_id
from servelab.engines import environment_probe
from servelab.engines.adapters import Engine
from servelab.engines.runtimes import RUNTIMES, Environment, Needs
from servelab.engines.server_to_start import NO_DEVICE, EnvironmentFacts, Setting
from servelab.machine.devices import DEVICES

VERSION = 1
"""Of the checks: another one checks every environment again."""
TIMEOUT_S = 1800.0
"""Importing vLLM takes ten seconds or more, and minutes from a network's disk or on a busy machine."""
NAMES = tuple(environment_probe.CHECKS)

_PROBE = Path(environment_probe.__file__)

Verdict = Literal["ok", "failed", "unknown"]


class EnvironmentCheck(JsonPart):
    """One check of an environment."""

    check: str = Field(description="What was checked: docs/engines.md lists the checks.")
    verdict: Verdict = Field(description="`ok`; or `unknown` if this machine cannot check it.")
    saw: str = Field(description="What was seen.")


class CheckedEnvironment(JsonFile):
    """An environment that passed its checks with a model and what studies set."""

    tool: str = Field(description="Engine.")
    version: str = Field(description="The version that the engine itself prints.")
    checks: list[EnvironmentCheck] = Field(description="All checks; none failed.")


def settings_id(engine: Engine, device: str, settings: Iterable[Setting]) -> str:
    """Names a check by what it depends on besides environment and model."""
    facts = repr(engine.facts) if engine.facts else ""
    parts = [[dict(each.options), dict(each.arguments), dict(each.variables)] for each in settings]
    return content_id([VERSION, facts, device, parts])


def check_environment(
    engine: Engine, environment: Environment, model_json: Path, device: str, settings: Sequence[Setting]
) -> list[EnvironmentCheck]:
    """All checks of an environment, with a model in the format that the engine serves.

    `device` is the kind that the studies measure on. Raises `Outage` if the environment's programs cannot be started.
    """
    facts = engine.facts
    if facts is None:
        why = f"the workflow cannot look into an installation of {engine.name}"
        return [EnvironmentCheck(check=name, verdict="unknown", saw=why) for name in NAMES]
    stored = StoredModel.read(model_json)
    model = (model_json.parent / stored.path).absolute()
    request = request_of(engine, facts, environment, model, device, settings)
    first, *others = [dict(each.variables) for each in settings] or [{}]
    common = {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
    answers = _ask(environment, request, common, [model, _PROBE.parent])
    rest = [EnvironmentCheck(check=name, verdict="unknown", saw=why) for name, why in _not_asked(facts, model).items()]
    found = {each.check: each for each in [*answers, *rest]}
    return [found[name] for name in NAMES if name in found]


def request_of(
    engine: Engine,
    facts: EnvironmentFacts,
    environment: Environment,
    model: Path,
    device: str,
    settings: Sequence[Setting],
) -> dict[str, Any]:
    """The questions to the probe."""
    left_out = _not_asked(facts, model)
    kernels = [
        {"package": kernel.package, "modules": kernel.modules, "is_built": kernel.is_built, "prebuilt": kernel.prebuilt}
        | {"asked_by": asked_by}
        for kernel in facts.kernels
        if (asked_by := kernel.asked_by(environment.version, device, _model_keys(model), settings))
    ]
    return {
        "checks": [name for name in NAMES if name not in left_out],
        "distributions": engine.packages,
        "application": facts.application,
        "parse": facts.parse,
        "fill_parser": facts.fill_parser,
        "parser_class": facts.parser_class,
        "base_flags": list(facts.base_flags),
        "tokenizer": facts.tokenizer,
        "configuration": facts.configuration,
        "read_keys": facts.read_keys(environment.version),
        "model": str(model),
        "kernels": kernels,
        # a container has its own toolkit or none; on the host it may be on another node
        "is_elsewhere": environment.image is None and not _is_here(device),
        "stand_in": facts.stand_in if device not in ("cpu", "cpu-cores") else [],
        "no_device": NO_DEVICE.get(device, ""),
    }


def refuse_failed(engine: Engine, environment: Environment, lock: str, checks: Sequence[EnvironmentCheck]) -> None:
    """`ConfigError` with a line per failed check and its remedy."""
    failed = [each for each in checks if each.verdict == "failed"]
    if failed:
        name = f"the environment of {engine.name} {environment.version} ({lock})"
        lines = [f"  {each.check}: {each.saw}\n    {_REMEDIES[each.check]}" for each in failed]
        raise ConfigError(f"{name} cannot serve this study; its runs are not measured\n" + "\n".join(lines))


_ANOTHER_LOCK = (
    "resolve its lock as of the release (`make lock ENGINE=… VERSION=…`, docs/engines.md), or use the engine's image"
)
_REMEDIES = {
    "packages": _ANOTHER_LOCK,
    "kernels": "use an environment that has it (the engine's image, docs/engines.md), or remove the candidate",
    "toolkit": "install a CUDA toolkit (nvcc on PATH, or /usr/local/cuda), or use the engine's image (docs/engines.md)",
    "application": _ANOTHER_LOCK,
    "options": _ANOTHER_LOCK,
    "tokenizer": f"{_ANOTHER_LOCK}; if the model is newer than the release, raise the engine's version",
    "configuration": f"{_ANOTHER_LOCK}; if the model is newer than the release, raise the engine's version",
}


def _not_asked(facts: EnvironmentFacts, model: Path) -> dict[str, str]:
    """Checks that cannot be asked → why."""
    left_out = {}
    if not facts.parse and not facts.fill_parser:
        left_out["options"] = "its parser cannot be loaded alone"
    if not facts.tokenizer or not model.is_dir():
        left_out["tokenizer"] = f"only the server reads the one in {model.name}"
    if not facts.configuration or not model.is_dir():
        left_out["configuration"] = f"only the server reads the one in {model.name}"
    return left_out


def _model_keys(model: Path) -> dict[str, str]:
    """The condition of `Kernel.models` on a model's config.json."""
    try:
        config = json.loads((model / "config.json").read_bytes())
        quantized = config.get("quantization_config") or {}
        return {"model_type": str(config.get("model_type", "")), "quant_method": str(quantized.get("quant_method", ""))}
    except (OSError, ValueError, AttributeError):
        return {}


def _ask(
    environment: Environment, request: dict[str, Any], variables: dict[str, str], reads: list[Path]
) -> list[EnvironmentCheck]:
    """Answers of the probe; a check during which it ended has failed."""
    shell = shell_variables()
    # nothing is reserved, so it may not touch a device on which another run is measured
    hidden = {kind.variable: "" for kind in DEVICES if kind.variable} | {"HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "request.json"
        asked.write_text(json.dumps(request), encoding="utf-8")
        needs = Needs(reads=[*reads, asked], writes=[], device=DEVICES.get("cpu"), devices=[])
        command = [str(environment.python), str(_PROBE), str(asked)]
        runtime = RUNTIMES.get(environment.runtime)
        inside, given = runtime.enter(environment, command, {**shell.passed, **variables, **hidden}, needs)
        full = {**shell.needed, **given}
        try:
            done = subprocess.run(
                inside,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
                env=full,
            )
        except OSError as error:
            raise Outage(f"{inside[0]} cannot be started: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise Outage(f"the checks of {environment.tool} did not end within {TIMEOUT_S:g} s") from error
    answers = [
        EnvironmentCheck.model_validate_json(line.removeprefix(environment_probe.MARK))
        for line in done.stdout.splitlines()
        if line.startswith(environment_probe.MARK)
    ]
    last_line = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1][:300]
    for name in request["checks"][len(answers) : len(answers) + 1]:
        saw = f"it ended with exit code {done.returncode}: {last_line}"
        answers.append(EnvironmentCheck(check=name, verdict="failed", saw=saw))
    return answers


def _is_here(device: str) -> bool:
    try:
        return bool(DEVICES.get(device).find())
    except Outage:
        return False
