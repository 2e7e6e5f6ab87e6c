"""Ranges of an integer option in a study's candidates, written in place of a value: one candidate for each value."""

from __future__ import annotations

from itertools import product
from typing import Any

from pydantic import Field, ValidationError, model_validator

from servelab.core.run_spec import Strict

MOST_VALUES = 100


class Range(Strict):
    """Values of an integer option: `{from: 8, to: 64, step: 8}`, or `{from: 1, to: 256, log: 2}`."""

    first: int = Field(alias="from", description="The first value.")
    to: int = Field(description="No value is larger.")
    step: int | None = Field(None, ge=1, description="Each value is this much more than the one before. Default: 1.")
    log: int | None = Field(None, ge=2, description="Each value is this many times the one before.")

    @model_validator(mode="after")
    def _has_values(self) -> Range:
        if self.to < self.first:
            raise ValueError(f"`to` is {self.to}, below `from`, {self.first}")
        if self.step is not None and self.log is not None:
            raise ValueError("give `step` or `log`, not both")
        if self.log is not None and self.first < 1:
            raise ValueError(f"with `log`, `from` must be at least 1, not {self.first}")
        if self.log is None and (self.to - self.first) // (self.step or 1) >= MOST_VALUES:
            raise ValueError(f"has more than {MOST_VALUES} values; give a larger `step`, or `log`")
        return self

    def values(self) -> list[int]:
        """The values in ascending order."""
        if self.log is None:
            return list(range(self.first, self.to + 1, self.step or 1))
        found, value = [], self.first
        while value <= self.to:
            found.append(value)
            value *= self.log
        return found


def expand_ranges(candidates: object) -> object:
    """Candidates as a study lists them, each with ranges replaced by one candidate for each combination of values.

    A label is followed by the values. What is no list of candidates is returned as it is, for its own check. Raises
    `ValueError` on a wrong range; it names candidate and key.
    """
    if not isinstance(candidates, list):
        return candidates
    found: list[object] = []
    for number, candidate in enumerate(candidates):
        found += _expanded(candidate, number) if isinstance(candidate, dict) else [candidate]
    return found


def _expanded(candidate: dict[str, Any], number: int) -> list[dict[str, Any]]:
    ranges = {
        (part, name): _range(value, f"{number}.{part}.{name}").values()
        for part in ("options", "arguments")
        for name, value in _items(candidate.get(part))
        if isinstance(value, dict)
    }
    found = []
    for values in product(*ranges.values()):
        changed = dict(candidate)
        for (part, name), value in zip(ranges, values, strict=True):
            changed[part] = {**changed[part], name: value}
        if ranges and candidate.get("label"):
            named = (f"{name}={value}" for (_, name), value in zip(ranges, values, strict=True))
            changed["label"] = ", ".join([str(candidate["label"]), *named])
        found.append(changed)
    return found


def _items(values: object) -> list[tuple[str, object]]:
    return list(values.items()) if isinstance(values, dict) else []


def _range(content: object, key: str) -> Range:
    try:
        return Range.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join([key, *(str(part) for part in first["loc"])])
        wrong = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {wrong}; a range is `{{from, to}}` with `step` or `log`") from None
