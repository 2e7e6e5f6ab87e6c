"""Runs that were measured earlier, for any study, found by what they share with a planned run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.identity import content_id
from servelab.core.registry import nearest
from servelab.core.run_spec import SENT, RunSpec
from servelab.measure.run_files import RunStatus

SHAPE = ("model", "hardware", "workload", "protocol")
"""Parts of a specification that mostly decide how long a run takes."""
TOO_LATE = "the allocation ends in"
_TIMES_USUAL = 1.5
_REPETITION = frozenset({"served", "start"})

T = TypeVar("T")


@dataclass(frozen=True)
class PastRun:
    """A complete run on disk."""

    run_id: str
    spec: dict[str, Any]
    """`spec.json` without defaults filled in: a specification with other keys stays different."""


def past_runs(folder: Path) -> Iterator[PastRun]:
    """The complete runs in `results/runs`, by name; folders that cannot be read are skipped."""
    for status in sorted(folder.glob("[0-9a-f]*/status.json")):
        try:
            spec = json.loads((status.parent / "spec.json").read_bytes())
            spec["engine"]["name"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        yield PastRun(status.parent.name, spec)


def configuration_id(spec: Mapping[str, Any]) -> str:
    """Hash of a specification without its engine's version, runtime and environment, and without its server start.

    Equal for all versions, whatever their adapters render, and for all repetitions.
    """
    return content_id({**_without(spec, _REPETITION), "engine": spec["engine"]["name"]})


class Parts(NamedTuple):
    """Seconds of a run, on the clock."""

    start_s: float | None
    """Until its server was healthy; None if an earlier run of the same visit had this start."""
    busy_s: float
    """All other time that its devices were reserved, further starts of its server included."""
    load_s: float
    """The part under load."""


def parts_of_runs(runs: Mapping[str, tuple[RunStatus, int]]) -> dict[str, Parts]:
    """The parts of each run's time, from the status and the accelerators of each.

    The first run of a server start has the start-up in its accelerator time. If the server never was healthy, all of
    its time is start-up.
    """
    found: dict[str, Parts] = {}
    seen: set[str] = set()
    for run_id, (status, accelerators) in sorted(runs.items(), key=lambda entry: entry[1][0].started_at):
        all_s, is_first = status.accelerator_s / accelerators, status.start_id is None or status.start_id not in seen
        if status.start_id is not None:
            seen.add(status.start_id)
        start_s = all_s if status.startup_s is None else min(status.startup_s, all_s - status.load_s)
        found[run_id] = Parts(start_s if is_first else None, all_s - start_s if is_first else all_s, status.load_s)
    return found


class VisitTime(NamedTuple):
    """Cost of one server start, in accelerator-seconds."""

    accelerator_s: float
    load_accelerator_s: float
    start_accelerator_s: float


def split_text(parts: Mapping[str, float], total: float) -> str:
    """`deciding load 41 %, other loads 20 %, start-up 30 %, idle 9 %`: parts of accelerator time, and the rest."""
    rest = {**parts, "idle": max(0.0, total - sum(parts.values()))}
    return ", ".join(f"{name} {share} %" for name, seconds in rest.items() if (share := round(100 * seconds / total)))


class PastTimes:
    """Costs of past runs, including failed ones, from which those of planned runs are estimated."""

    def __init__(self, runs: Path) -> None:
        """`runs` is `results/runs`."""
        self._starts: dict[str, list[float]] = {}
        self._runs: dict[str, list[Parts]] = {}
        self.held_s: dict[str, float] = {}
        """Accelerator-seconds of each run."""
        specs, statuses = {}, {}
        for run in past_runs(runs):
            try:
                status = RunStatus.read(runs / run.run_id / "status.json")
                statuses[run.run_id] = status, int(run.spec["hardware"]["count"])
            except (ServelabError, LookupError, TypeError, ValueError):
                continue
            specs[run.run_id], self.held_s[run.run_id] = run.spec, statuses[run.run_id][0].accelerator_s
        for run_id, parts in parts_of_runs(statuses).items():
            for key in _alike(specs[run_id]):
                self._runs.setdefault(key, []).append(parts)
            if parts.start_s is not None:
                for key in _started_alike(specs[run_id]):
                    self._starts.setdefault(key, []).append(parts.start_s)

    def __bool__(self) -> bool:
        """Whether there are any past runs."""
        return bool(self._runs)

    def about_s(self, spec: RunSpec) -> float | None:
        """Accelerator-seconds of a run on a server that is up, as in `of_visit`; None if there is no similar run."""
        runs = self._most_alike(self._runs, _alike(spec.model_dump(mode="json")))
        return spec.hardware.count * fmean(parts.busy_s for parts in runs) if runs else None

    def of_visit(self, specs: Sequence[RunSpec]) -> VisitTime | None:
        """Cost of a server start that serves these runs; None if one of them has no similar past run.

        Its start-up is the mean of past ones of the same configuration, else of the same engine, model and hardware,
        else of the same model and hardware; if there is none, the longest that it may take. The time of a run is the
        mean of runs of the same configuration at another version, else of the same engine and shape (`SHAPE`), else of
        the same shape.
        """
        runs = [self._most_alike(self._runs, _alike(spec.model_dump(mode="json"))) for spec in specs]
        if not all(runs):
            return None
        starts = self._most_alike(self._starts, _started_alike(specs[0].model_dump(mode="json")))
        start_s = fmean(starts) if starts else specs[0].protocol.startup_timeout_s
        busy_s = sum(fmean(parts.busy_s for parts in found) for found in runs)
        load_s = sum(fmean(parts.load_s for parts in found) for found in runs)
        count = specs[0].hardware.count
        return VisitTime(count * (start_s + busy_s), count * load_s, count * start_s)

    def check_time_left(self, visits: Sequence[Sequence[RunSpec]], ends_s: float, now_s: float) -> None:
        """Raises `Outage` if half as much again as these server starts usually take is more than what is left.

        `ends_s` and `now_s` are Unix times. Server starts of a kind that was never measured are not held back.
        """
        times = [(self.of_visit(visit), visit[0].hardware.count) for visit in visits]
        needs_s = _TIMES_USUAL * sum(time.accelerator_s / count for time, count in times if time)
        if now_s + needs_s > ends_s:
            raise Outage(f"{TOO_LATE} {(ends_s - now_s) / 60:.0f} min, and this may take {needs_s / 60:.0f} min")

    @staticmethod
    def _most_alike(known: Mapping[str, list[T]], keys: Iterable[str]) -> list[T]:
        return next((known[key] for key in keys if key in known), [])


def _alike(spec: Mapping[str, Any]) -> tuple[str, str, str]:
    """Keys of similar runs, the most specific first."""
    shape = {part: spec.get(part) for part in SHAPE}
    return configuration_id(spec), content_id([spec["engine"]["name"], shape]), content_id(shape)


def _started_alike(spec: Mapping[str, Any]) -> tuple[str, str, str]:
    """Keys of similar server starts, the most specific first."""
    place = {part: spec.get(part) for part in ("model", "hardware")}
    served = configuration_id(_without(spec, SENT))
    return served, content_id([spec["engine"]["name"], place]), content_id(place)


def _without(spec: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in names}


STUDY_FOLDER = "name of a study with results, or its folder: results/studies/<study>"
"""Help of an argument that `study_folder` reads."""
_KINDS = ("studies", "recorded")


def study_folder(given: Path, results: Path) -> Path:
    """The folder that is given, or that of the study with this name, a live one first; `ConfigError` without answer."""
    named = [results / kind / given for kind in _KINDS] if len(given.parts) == 1 else []
    for folder in (given, *named):
        if (folder / "recommended.json").is_file():
            return folder
    if any((each / "stages").is_dir() for each in (given, *named)) or Path(f"config/studies/{given}.yaml").is_file():
        raise ConfigError(f"{given}: not finished: `servelab run {given.name}` measures what is missing of it")
    known = [folder.name for kind in _KINDS for folder in results.glob(f"{kind}/*/")]
    raise ConfigError(f"{given}: no such folder, and no study with results has this name{nearest(given.name, known)}")


def finished_studies(results: Path) -> list[Path]:
    """Folders of all studies with a recommendation, by kind and name; `ConfigError` if there is none."""
    found = [file.parent for kind in _KINDS for file in sorted(results.glob(f"{kind}/*/recommended.json"))]
    if not found:
        raise ConfigError(f"{results}: no study is finished; `servelab status` prints how far each is")
    return found
