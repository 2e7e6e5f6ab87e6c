"""Facts of a run, field by field, and the fields in which two runs differ.

A live run has a complete specification, a recorded run only a part of it. If one of two runs is recorded, both are
compared by the fields that every run has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servelab.core.identity import canonical_json
from servelab.study.recorded.commands import MODEL_OPTIONS, read_command

COMPARED = (
    *("engine name", "engine version", "engine runtime", "engine environment_sha256"),
    *("hardware accelerator", "hardware device"),
)
"""Fields that a comparison may be about: runs that differ only in these are compared."""

ENGINES_OWN = ("model format", "model conversion")
"""Fields that change with the engine: the same weights in the format that it serves."""

CONFIGURATION = ("hardware count", "arguments ", "command", "environment_variables ", "model", "options ")
"""Fields that a study chooses, in which two answers may differ. Names, and beginnings of names."""

NOT_RECORDED = "engine environment, load client, warm-up and rounds, machine, date"
"""Fields that are unknown of a recorded run."""

_NOT_SENT = ("objective", "slos", "unless_saturated", "start", "served")
"""Parts of a specification that cannot change a measurement that was made, or follow from the others."""
_SHOWN = 12
"""Characters shown of a hash."""


@dataclass(frozen=True)
class Facts:
    """Known facts of a run: field → text."""

    complete: Mapping[str, str] | None
    """The whole specification; None for a recorded run."""
    partial: Mapping[str, str]
    """The fields that live and recorded runs both have."""


@dataclass(frozen=True)
class FactDifference:
    """A field in which two runs differ; None where one has no such field."""

    field: str
    a: str | None
    b: str | None

    @property
    def text(self) -> str:
        """`engine version 1.2 → 1.3`."""
        return f"{self.field} {_short(self.a)} → {_short(self.b)}"


def live_facts(spec: Mapping[str, Any], workload: str, command: str) -> Facts:
    """Facts of a live run: its specification (RunSpec as JSON, also of older releases), workload's name and command.

    The study's own name for the weights is omitted, and so is the metric that ends the rounds if their number is fixed:
    neither can change a measurement. So are the label of the server start, and what the server was given, which follows
    from the rest and from the adapter's version.
    """
    flat = _flat({name: part for name, part in spec.items() if name not in _NOT_SENT})
    flat.pop("model.variant", None)
    protocol, parameters = spec["protocol"], spec["workload"]["parameters"]
    rounds = protocol.get("rounds")
    if isinstance(rounds, dict) and rounds.get("min") != rounds.get("max"):  # of an older release
        flat |= _flat({"rounds end by": spec["objective"], "limits of it": spec.get("slos", {})})
    engine, hardware = spec["engine"], spec["hardware"]
    return Facts(
        complete={name.replace(".parameters", "").replace(".", " ", 1): value for name, value in flat.items()},
        partial=_partial(
            parameters,
            workload,
            engine_name=engine["name"],
            engine_version=engine["version"],
            model=spec["model"]["id"],
            hardware_accelerator=hardware["accelerator"],
            hardware_count=hardware["count"],
            command=_options(command),
            requests=parameters.get("num_requests"),
            request_rate=protocol.get("request_rate"),
            max_concurrency=protocol.get("max_concurrency"),
        ),
    )


def recorded_facts(spec: Mapping[str, Any], workload: str) -> Facts:
    """Facts of a recorded run: its recorded.plan.RecordedSpec as JSON, and its workload's name."""
    sent = spec["workload"]
    partial = _partial(
        sent,
        workload,
        engine_name=spec["engine"],
        engine_version=spec["engine_version"],
        model=spec["model"],
        hardware_accelerator=spec["accelerator"],
        hardware_count=spec["accelerators"],
        command=_options(spec["command"]),
        requests=sent["prompts"],
        request_rate=sent["request_rate"],
        max_concurrency=sent["max_concurrency"],
    )
    return Facts(complete=None, partial=partial)


def _partial(sent: Mapping[str, Any], workload: str, **facts: Any) -> dict[str, str]:
    """The facts by their names in words, with the lengths of requests; of lengths that vary, the workload's name."""
    lengths = sent.get("input_tokens"), sent.get("output_tokens")
    named = {name.replace("_", " "): str(value) for name, value in facts.items()}
    return named | {"workload": workload if None in lengths else "{} in, {} out".format(*lengths)}


def differences(a: Facts, b: Facts) -> list[FactDifference]:
    """Every field in which two runs differ, of the fields known of both."""
    is_complete = a.complete is not None and b.complete is not None
    one, other = (each.complete if is_complete and each.complete is not None else each.partial for each in (a, b))
    return [
        FactDifference(name, one.get(name), other.get(name))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]


def blocking(found: list[FactDifference], *, answers: bool = False) -> list[FactDifference]:
    """The differences that make two runs not comparable; `answers` of studies may differ in their configuration."""
    fields = {each.field for each in found}
    allowed = COMPARED + (ENGINES_OWN if "engine name" in fields else ())
    return [
        each for each in found if each.field not in allowed and not (answers and each.field.startswith(CONFIGURATION))
    ]


def _options(command: str) -> str:
    """The options of a serving command, sorted, without program and model."""
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


def _short(value: str | None) -> str:
    if value is None:
        return "(not given)"
    is_hash = len(value) >= 40 and set(value) <= set("0123456789abcdef")
    return value[:_SHOWN] if is_hash else value
