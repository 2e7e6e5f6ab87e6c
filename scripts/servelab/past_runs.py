"""Runs that were measured before, whatever study asked for them, found by what they share with a planned one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from servelab.identity import content_id
from servelab.spec import RunSpec

SHAPE = ("model", "hardware", "workload", "protocol")
"""Parts of a specification that decide most of how long a run takes."""


@dataclass(frozen=True)
class PastRun:
    """A complete run on disk."""

    run_id: str
    spec: dict[str, Any]
    """`spec.json` as it is: with no default filled in, so that a specification of other keys stays another."""


def past_runs(folder: Path) -> Iterator[PastRun]:
    """The complete runs in `results/runs`, by name; what cannot be read is no run to compare with and is left out."""
    for status in sorted(folder.glob("[0-9a-f]*/status.json")):
        try:
            spec = json.loads((status.parent / "spec.json").read_bytes())
            spec["engine"]["name"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        yield PastRun(status.parent.name, spec)


def configuration_id(spec: Mapping[str, Any]) -> str:
    """Hash of a specification without its engine's version, runtime and environment: equal for all versions of it."""
    return content_id({**spec, "engine": spec["engine"]["name"]})


class PastTimes:
    """Accelerator time that past runs took, failed ones included, for telling what planned ones will take."""

    def __init__(self, runs: Path) -> None:
        """`runs` is `results/runs`."""
        self._seconds: dict[str, list[float]] = {}
        for run in past_runs(runs):
            try:
                seconds = float(json.loads((runs / run.run_id / "status.json").read_bytes())["accelerator_s"])
            except (OSError, ValueError, LookupError, TypeError):
                continue
            for key in _alike(run.spec):
                self._seconds.setdefault(key, []).append(seconds)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._seconds)

    def about_s(self, spec: RunSpec) -> float | None:
        """Accelerator-seconds, the mean over the runs most like it; None where none is like it.

        Like it are runs of the same configuration at another version, else of the same engine and shape (`SHAPE`), else
        of the same shape.
        """
        for key in _alike(spec.model_dump(mode="json")):
            if key in self._seconds:
                return fmean(self._seconds[key])
        return None


def _alike(spec: Mapping[str, Any]) -> tuple[str, str, str]:
    """Names of what a run is like, the narrowest first."""
    shape = {part: spec.get(part) for part in SHAPE}
    return configuration_id(spec), content_id([spec["engine"]["name"], shape]), content_id(shape)
