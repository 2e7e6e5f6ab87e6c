"""What a run is, field by field, and how two runs differ in it.

Live runs have a complete specification. Of recorded ones only some is known: where one of two runs is recorded,
both are told in what can be said of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servelab.identity import canonical_json
from servelab.recorded.commands import MODEL_OPTIONS, read_command

COMPARED = ("engine", "engine version", "runtime", "engine environment", "accelerator", "device")
"""What a comparison may be about: runs that differ in nothing else are compared."""

ENGINES_OWN = ("model format", "model conversion")
"""What another engine brings with it: the same weights in the format that it serves."""

CONFIGURATION = ("accelerators", "arguments ", "command", "environment variable ", "model", "options ")
"""What a study chooses: its answer may differ from another study's in it. Names, and beginnings of names."""

NOT_RECORDED = "engine environment, load client, warm-up and rounds, machine, date"
"""What nobody can say of a recorded run."""

_WORDS = {
    "engine.name": "engine",
    "engine.environment_sha256": "engine environment",
    "model.id": "model",
    "hardware.accelerator": "accelerator",
    "hardware.device": "device",
    "hardware.count": "accelerators",
    "client.name": "client",
    "client.environment_sha256": "client environment",
}
_SHOWN = 12
"""Characters of a hash that are shown."""


@dataclass(frozen=True)
class Facts:
    """What is known of a run, as text by field."""

    complete: Mapping[str, str] | None
    """The whole specification; None for a recorded run."""
    partial: Mapping[str, str]
    """What can be said of live and recorded runs alike."""


@dataclass(frozen=True)
class Difference:
    """A field in which two runs differ; None where one has no such field."""

    field: str
    a: str | None
    b: str | None

    @property
    def text(self) -> str:
        """`engine version 1.2 → 1.3`."""
        return f"{self.field} {_short(self.a)} → {_short(self.b)}"


def live_facts(spec: Mapping[str, Any], workload: str, command: str) -> Facts:
    """Facts of a live run: its specification (spec.RunSpec as JSON, older ones too), its workload's name and command.

    The study's own name for the weights is left out, as is the metric that ends the rounds where their number is fixed:
    neither can change a measurement.
    """
    flat = _flat({name: part for name, part in spec.items() if name not in ("objective", "slos")})
    flat.pop("model.variant", None)
    protocol, parameters = spec["protocol"], spec["workload"]["parameters"]
    rounds = protocol.get("rounds", {})
    if rounds.get("min") != rounds.get("max"):
        flat |= _flat({"rounds end by": spec["objective"], "limits of it": spec.get("slos", {})})
    engine, hardware = spec["engine"], spec["hardware"]
    return Facts(
        complete={_word(name): value for name, value in flat.items()},
        partial=_partial(
            engine["name"],
            engine["version"],
            spec["model"]["id"],
            hardware["accelerator"],
            hardware["count"],
            command,
            workload,
            parameters.get("num_requests"),
            parameters.get("input_tokens"),
            parameters.get("output_tokens"),
            protocol.get("request_rate"),
            protocol.get("max_concurrency"),
        ),
    )


def recorded_facts(spec: Mapping[str, Any], workload: str) -> Facts:
    """Facts of a recorded run: its recorded.plan.RecordedSpec as JSON, and its workload's name."""
    sent = spec["workload"]
    return Facts(
        complete=None,
        partial=_partial(
            spec["engine"],
            spec["engine_version"],
            spec["model"],
            spec["accelerator"],
            spec["accelerators"],
            spec["command"],
            workload,
            sent["prompts"],
            sent["input_tokens"],
            sent["output_tokens"],
            sent["request_rate"],
            sent["max_concurrency"],
        ),
    )


def differences(a: Facts, b: Facts) -> list[Difference]:
    """Every field in which two runs differ, in what is known of both."""
    if a.complete is None or b.complete is None:
        one, other = a.partial, b.partial
    else:
        one, other = a.complete, b.complete
    return [
        Difference(name, one.get(name), other.get(name))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]


def blocking(found: list[Difference], *, answers: bool = False) -> list[Difference]:
    """Those differences for which two runs are not compared; `answers` of studies may differ in their configuration."""
    fields = {each.field for each in found}
    allowed = COMPARED + (ENGINES_OWN if "engine" in fields else ())
    return [
        each for each in found if each.field not in allowed and not (answers and each.field.startswith(CONFIGURATION))
    ]


def key(facts: Facts, *, complete: bool, answers: bool = False) -> str:
    """Equal for runs that may be comparable: everything but what is compared."""
    known = facts.complete if complete and facts.complete is not None else facts.partial
    left_out = COMPARED + ENGINES_OWN
    return canonical_json(
        {
            name: value
            for name, value in known.items()
            if name not in left_out and not (answers and name.startswith(CONFIGURATION))
        }
    )


def _partial(
    engine: str,
    version: str,
    model: str,
    accelerator: str,
    accelerators: int,
    command: str,
    workload: str,
    requests: int | None,
    input_tokens: int | None,
    output_tokens: int | None,
    request_rate: float | str | None,
    max_concurrency: int | None,
) -> dict[str, str]:
    # lengths that vary are known by nothing but the workload's name
    lengths = workload if None in (input_tokens, output_tokens) else f"{input_tokens} in, {output_tokens} out"
    return {
        "engine": engine,
        "engine version": version,
        "model": model,
        "accelerator": accelerator,
        "accelerators": str(accelerators),
        "command": _options(command),
        "workload": lengths,
        "requests": str(requests),
        "request rate": str(request_rate),
        "max concurrency": str(max_concurrency),
    }


def _options(command: str) -> str:
    """What a serving command says beside program and model, in one order."""
    parts = read_command(command)
    words = [f"{name}={value}" for name, value in sorted(parts.variables.items())]
    for name, value in sorted(parts.options.items()):
        if name not in MODEL_OPTIONS:
            words.append(name if value is None else f"{name} {value}")
    return " ".join(words) or "no options"


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Leaves of nested JSON by their dotted paths; an empty mapping has none, nulls stay `null`."""
    if isinstance(value, Mapping):
        parts = (_flat(part, f"{name}.{key}" if name else str(key)) for key, part in value.items())
        return {path: leaf for part in parts for path, leaf in part.items()}
    return {name: value if isinstance(value, str) else canonical_json(value)}


def _word(path: str) -> str:
    """A path of the specification in words: `options.max_num_seqs` is `options max_num_seqs`."""
    if path in _WORDS:
        return _WORDS[path]
    part, _, rest = path.partition(".")
    if part == "environment_variables":
        return f"environment variable {rest}"
    if part == "engine" and rest == "runtime":
        return rest
    return f"{part} {rest.removeprefix('parameters.')}".strip()


def _short(value: str | None) -> str:
    if value is None:
        return "(not given)"
    is_hash = len(value) >= 40 and set(value) <= set("0123456789abcdef")
    return value[:_SHOWN] if is_hash else value
