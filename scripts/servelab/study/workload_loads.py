"""The workloads of a study, each with what its load has of its own; the study's `protocol` is the default."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from servelab.core.run_spec import Arrivals, CapacitySpec, LoadOf, ProtocolSpec, Strict

MOST_POINTS = 33


_Levels = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=MOST_POINTS)]
_Rates = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=MOST_POINTS)]


class Curve(Strict):
    """The points of a curve: `{max_concurrency: [1, 4, 16]}`, or `{request_rate: [1, 2, 4]}`.

    All points of a configuration are measured on one server start, the lowest first.
    """

    max_concurrency: _Levels | None = Field(None, description="Most requests in flight, one number a point.")
    request_rate: _Rates | None = Field(None, description="Requests per second, one number a point.")

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
        return sorted(getattr(self, self.of))


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


NAME = r"^[a-z0-9][a-z0-9._-]*$"
"""A name that a user gives: it is part of file names."""
NO_LIMIT = "inf"
_NAMES = frozenset({"name", "workload", "title", "load", "curve", "level"})
"""Keys that are not of a load itself."""
_OF_REQUESTS = _NAMES | {"num_requests", "slos", "pairs"}
"""Keys that are not of the protocol."""

_Limit = Annotated[int, Field(ge=1)] | Literal["inf"]


class StudyWorkload(Strict):
    """A workload and its load. A key that is missing is that of `protocol`, of `objective.slos`, or of the workload."""

    name: str = Field(pattern=NAME, description="Name in this study; two loads of one workload have two names.")
    workload: str | None = Field(None, description="Workload of config/workloads.yaml. Default: `name`.")
    title: str | None = Field(
        None, description="Name in reports. Default: the workload's title, and what is given here."
    )
    num_requests: int | None = Field(None, gt=0, description="Requests of a round, if not the workload's number.")
    request_rate: Annotated[float, Field(gt=0)] | Literal["inf"] | None = Field(
        None, description="Mean requests per second; `inf` sends as fast as `max_concurrency` allows."
    )
    arrivals: Arrivals | None = Field(None, description="Gaps between requests, as in `protocol`.")
    burstiness: float | None = Field(None, gt=0, description="Shape of `gamma` arrivals.")
    ramp_up_s: float | None = Field(None, ge=0, description="Seconds over which the rate grows from 0.")
    max_concurrency: _Limit | None = Field(None, description="Most requests in flight; `inf` is no limit.")
    duration_s: Annotated[float, Field(gt=0)] | Literal["inf"] | None = Field(
        None, description="Seconds to send for; `inf` sends the whole workload."
    )
    settle_requests: int | None = Field(None, ge=0, description="Requests at the start that are not counted.")
    saturation_in_flight: _Limit | None = Field(
        None, description="End the round at this many requests in flight; `inf` never does."
    )
    slos: dict[str, Annotated[float, Field(gt=0)]] | None = Field(
        None, description="Limits of this workload for `goodput_per_s`, in place of all of `objective.slos`."
    )
    rounds: int | None = Field(
        None,
        ge=1,
        description="Rounds on each server start. Default: 1; `protocol.rounds` of the curve or load that decides.",
    )
    pairs: int | None = Field(
        None, ge=1, description="Pairs of the proof that measure it, at least. Default: the first, `proof.pairs`."
    )

    load: Loads | None = Field(
        None,
        description="Several loads: a curve, whose points are loads, `<name>-c<number>` or `<name>-r<rate>`; or "
        "`{capacity: {of: request_rate, slos: {ttft_ms: {p99: 2000}}}}`, which searches the highest one (metrics.md).",
    )

    @model_validator(mode="after")
    def _has_one_load(self) -> StudyWorkload:
        if self.load is not None and type(self) is StudyWorkload and getattr(self, self.load.of) is not None:
            raise ValueError(f"`{self.load.of}` is in `load` too; give one of them")
        return self

    @property
    def of(self) -> str:
        """Name of the workload in config/workloads.yaml."""
        return self.workload or self.name

    @property
    def own(self) -> dict[str, Any]:
        """The load's own settings, as a study has them."""
        return self.model_dump(mode="json", exclude_none=True, exclude=set(_NAMES))

    def as_written(self) -> str | dict[str, Any]:
        """As a study lists it: its name, or a mapping if there is more to say."""
        content = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return self.name if content.keys() == {"name"} else content

    @property
    def capacity(self) -> CapacitySpec | None:
        """The search for its capacity, if that is its load."""
        return self.load.capacity if isinstance(self.load, CapacityLoad) else None

    def protocol(self, whole: ProtocolSpec) -> ProtocolSpec:
        """The protocol under which it is sent, from the study's; pydantic's `ValidationError` if they contradict.

        What a search for capacity raises from step to step has its lowest value.
        """
        given = {
            key: None if value == NO_LIMIT and key != "request_rate" else value
            for key, value in self.own.items()
            if key not in _OF_REQUESTS
        }
        if self.capacity is not None:
            lowest = self.capacity.lowest
            given |= {self.capacity.of: lowest if self.capacity.of == "request_rate" else int(lowest), "rounds": 1}
        return ProtocolSpec.model_validate(whole.model_dump() | given) if given else whole

    def titled(self, title: str) -> str:
        """Its name in reports; `title` is the workload's."""
        return self.title or ", ".join([title, *self._facts()])

    def _facts(self) -> list[str]:
        own = {key: value for key, value in self.own.items() if key in _WORDS}
        searched = [_capacity_words(self.capacity)] if self.capacity else []
        limits = ", ".join(f"{metric} {limit:g}" for metric, limit in (self.slos or {}).items())
        return [_WORDS[key](value) for key, value in own.items()] + searched + ([f"SLOs {limits}"] if limits else [])


class CurvePoint(StudyWorkload):
    """A point of a curve: a workload with a load of its own, made from an entry with `load`."""

    curve: str
    """Name of the entry."""
    level: float
    """Its value of what the points of the curve differ in."""

    @property
    def load_of(self) -> LoadOf:
        """The setting in which the points of its curve differ."""
        assert isinstance(self.load, Curve)
        return self.load.of

    def as_written(self) -> str | dict[str, Any]:
        """The whole curve, as a study lists it."""
        assert isinstance(self.load, Curve)
        content = self.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"curve", "level", self.load.of}
        )
        if self.of == self.curve:
            del content["workload"]
        if self.title is not None:
            content["title"] = self.title.removesuffix(f", {_WORDS[self.load.of](getattr(self, self.load.of))}")
        return {**content, "name": self.curve}


def expand_curves(workloads: dict[str, StudyWorkload]) -> dict[str, StudyWorkload]:
    """The workloads with each curve replaced by its points, the lowest first; `ValueError` if a name is taken."""
    found: dict[str, StudyWorkload] = {}
    for name, entry in workloads.items():
        for each in _points(entry, entry.load) if isinstance(entry.load, Curve) else [entry]:
            if each.name in found or (each.name != name and each.name in workloads):
                raise ValueError(f"`{each.name}` is a point of `{name}` and another workload; rename one")
            found[each.name] = each
    return found


def _points(entry: StudyWorkload, curve: Curve) -> list[StudyWorkload]:
    found: list[StudyWorkload] = []
    for value in curve.values:
        level = int(value) if curve.of == "max_concurrency" else value
        # `sharegpt-c16` at most 16 in flight, `sharegpt-r2.5` at 2.5 requests/s
        name = f"{entry.name}-{'c' if curve.of == 'max_concurrency' else 'r'}{Decimal(repr(level)).normalize():f}"
        own = {"name": name, "workload": entry.of, curve.of: level}
        if entry.title is not None:
            own["title"] = f"{entry.title}, {_WORDS[curve.of](level)}"
        content = {key: getattr(entry, key) for key in StudyWorkload.model_fields} | own
        found.append(CurvePoint(**content, curve=entry.name, level=level))
    return found


def _capacity_words(spec: CapacitySpec) -> str:
    limits = [f"{metric} {of} of at most {limit:g}" for metric, each in spec.slos.items() for of, limit in each.items()]
    of = {"request_rate": "requests/s", "max_concurrency": "requests in flight"}[spec.of]
    return f"most {of}" + (f" with {', '.join(limits)}" if limits else "")


def _limited(text: str, unlimited: str) -> Any:
    return lambda value: unlimited if value == NO_LIMIT else text.format(value)


LOAD_KEYS = set(StudyWorkload.model_fields) - _OF_REQUESTS
"""Keys of `protocol` that a workload may have of its own."""

_WORDS: dict[str, Any] = {
    "num_requests": "{:,} requests".format,
    "request_rate": _limited("{:g} requests/s", "as fast as possible"),
    "arrivals": "{} arrivals".format,
    "burstiness": "burstiness {:g}".format,
    "ramp_up_s": "{:g} s ramp-up".format,
    "max_concurrency": _limited("at most {:,} in flight", "no limit in flight"),
    "duration_s": _limited("for {:g} s", "all requests"),
    "settle_requests": "{:,} to settle".format,
    "saturation_in_flight": _limited("ends at {:,} in flight", "without an end at saturation"),
}
"""A key of a load → how a title has its value."""


def read_workloads(given: object) -> object:
    """The workloads of a study by their names, from a list of names and mappings; `ValueError` if it is none."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ValueError("must be a list of workloads; each is a name, or a mapping with `name`")
    found: dict[str, object] = {}
    for number, entry in enumerate(given):
        entry = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ValueError(f"entry {number} is neither a name nor a mapping with `name`")
        if entry["name"] in found:
            raise ValueError(f"`{entry['name']}` is there twice; give another load of it a `name` of its own")
        found[entry["name"]] = entry
    if not found:
        raise ValueError("is empty; name a workload of config/workloads.yaml")
    return found
