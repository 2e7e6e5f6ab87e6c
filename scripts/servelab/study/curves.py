"""Curves: one workload at several loads. Each point is a load of its own, measured and kept by itself."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import chain, count, islice
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from servelab.core.run_spec import CapacitySpec, LoadOf, Strict

MOST_POINTS = 33
_SIGNIFICANT = 6
"""Digits of a computed rate."""


class Spaced(Strict):
    """Rates from one to another, evenly spaced for 3, 5, 9, 17 points; one point more halves a gap, the lowest first.

    So the rates of fewer points are among those of more, and a point more is one more run.
    """

    first: float = Field(alias="from", gt=0, description="The lowest rate.")
    to: float = Field(gt=0, description="The highest rate.")
    points: int = Field(ge=2, le=MOST_POINTS, description="How many rates, both ends included.")

    @model_validator(mode="after")
    def _has_a_range(self) -> Spaced:
        if self.to <= self.first:
            raise ValueError(f"`to` is {self.to:g}, not above `from`, {self.first:g}")
        return self

    def values(self) -> list[float]:
        """The rates; the same for the same ends, however many there are."""
        shares = islice(chain((0.0, 1.0), _halves()), self.points)
        return [float(f"{self.first + share * (self.to - self.first):.{_SIGNIFICANT}g}") for share in shares]


def _halves() -> Iterator[float]:
    """1/2, 1/4, 3/4, 1/8, 3/8, 5/8, 7/8, 1/16 …"""
    for level in count(1):
        yield from (odd / 2**level for odd in range(1, 2**level, 2))


_Levels = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=MOST_POINTS)]
_Rates = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=MOST_POINTS)]
_RatesOrRange = Annotated[
    Annotated[_Rates, Tag("list")] | Annotated[Spaced, Tag("range")],
    Discriminator(lambda given: "list" if isinstance(given, list) else "range"),
]


class Curve(Strict):
    """The points of a curve: `{max_concurrency: [1, 4, 16]}`, or `{request_rate: {from: 1, to: 16, points: 5}}`.

    All points of a configuration are measured on one server start, the lowest first.
    """

    max_concurrency: _Levels | None = Field(None, description="Most requests in flight, one number a point.")
    request_rate: _RatesOrRange | None = Field(
        None, description="Requests per second: a list, or `{from: 1, to: 16, points: 5}`."
    )

    @model_validator(mode="after")
    def _is_one(self) -> Curve:
        if (self.max_concurrency is None) == (self.request_rate is None):
            raise ValueError("give `max_concurrency` or `request_rate`, and one of them only")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"`{self.of}` has a point twice")
        return self

    @property
    def of(self) -> LoadOf:
        """The key of the load in which its points differ."""
        return "request_rate" if self.max_concurrency is None else "max_concurrency"

    @property
    def values(self) -> list[float]:
        """The points, the lowest first."""
        given: Any = getattr(self, self.of)
        return sorted(given.values() if isinstance(given, Spaced) else given)


class CapacityLoad(Strict):
    """A search for the highest load that holds: `{capacity: {of: request_rate, slos: {ttft_ms: {p99: 2000}}}}`."""

    capacity: CapacitySpec = Field(description="What is raised, between which loads, and what has to hold.")

    @property
    def of(self) -> LoadOf:
        """The key of the load that the search raises."""
        return self.capacity.of


Loads = Annotated[
    Annotated[Curve, Tag("curve")] | Annotated[CapacityLoad, Tag("capacity")],
    Discriminator(lambda given: "capacity" if _has_capacity(given) else "curve"),
]


def _has_capacity(given: object) -> bool:
    return isinstance(given, CapacityLoad) or (isinstance(given, dict) and "capacity" in given)


def point_name(workload: str, of: LoadOf, value: float) -> str:
    """Name of a point: `sharegpt-c16` at most 16 in flight, `sharegpt-r2.5` at 2.5 requests/s."""
    return f"{workload}-{'c' if of == 'max_concurrency' else 'r'}{Decimal(repr(value)).normalize():f}"
