"""Finds the release that made serving slower: pairs of starts next to each other, over ever fewer releases.

Releases between a good and a bad one are compared with the good one, in pairs of fresh starts next to each other, as in
a proof (`servelab.search.proof`). One counts as slow if the whole 95 % interval of its change is beyond half of the
change between good and bad, and as fast if the whole interval is on the other side. So noise must move an interval by
half of the change before a step goes the wrong way. A release that cannot be measured, or that the pairs do not place,
is passed over, and is named if the guilty one may be it. The release that is found is compared with the one before it
on further starts, which chose nothing: only if they show it to be slower is it named.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import yaml

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.figure_text import figure
from servelab.core.files import CHECKOUT, own_or_shipped, write_text
from servelab.core.yaml_file import read_yaml
from servelab.measure.run_files import RunStatus
from servelab.metrics.statistics import Interval
from servelab.metrics.tables.io import read_table
from servelab.search.project import load_project
from servelab.search.proof import BASELINE, WINNER, ProofPair, looks, pairs_wanted, proved_change
from servelab.study.configuration import Configuration
from servelab.study.plan import Plan
from servelab.study.search_keys import Objective

FIRST_PAIRS = 4
SHARE_OF_CHANGE = 1 / 4
"""The half width of a step's interval that is aimed at, as a share of the change between good and bad."""

MOST_BETWEEN = timedelta(minutes=30)
"""From the end of a pair's first start to the beginning of its second. Starts of an earlier day are no pair."""
MOST_LEFT_OUT = 20


class Skipped(Exception):  # noqa: N818 - a result, not an error
    """A release cannot be measured; the text says why."""


class NotServed(Skipped):
    """Its run is kept and says so: measured again, it would say the same."""


@dataclass(frozen=True)
class ReleaseStart:
    """A server start of a release, measured."""

    value: float
    """The objective, above 0."""
    began: datetime
    ended: datetime


@dataclass(frozen=True)
class ComparedReleases:
    """Two releases, compared."""

    old: str
    new: str
    pairs: Sequence[ProofPair]
    change: Interval
    """Of the objective from old to new in percent, with its 95 % interval."""

    def gain(self, sign: int) -> tuple[float, float]:
        """The ends of the interval as natural logarithms; `sign` is 1 where more is better, else -1."""
        assert self.change.low is not None and self.change.high is not None
        low, high = sorted(sign * math.log1p(end / 100) for end in (self.change.low, self.change.high))
        return low, high

    def word(self, objective: Objective) -> Literal["better", "same", "worse", "cannot tell"]:
        """The verdict on the new release, by where the whole interval is."""
        low, high = self.gain(objective.sign)
        if low > 0 or high < 0:
            return "better" if low > 0 else "worse"
        widest = max(abs(end or 0.0) for end in self.change[1:])
        return "same" if widest <= objective.margin_percent else "cannot tell"


@dataclass
class Bisection:
    """The findings so far, and in the end."""

    releases: Sequence[str]
    """In order: the good one first, the bad one last."""
    steps: list[ComparedReleases] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    """Why releases were not placed, by their version."""
    last_good: str | None = None
    suspects: list[str] = field(default_factory=list)
    """The releases that may have made it slower, in order; none if good and bad do not differ."""
    evidence: ComparedReleases | None = None
    """The guilty release against the one before it."""

    @property
    def guilty(self) -> str | None:
        """The release that made it slower, if it is one, and shown."""
        return self.suspects[0] if len(self.suspects) == 1 and self.evidence is not None else None


class InterleavedPairs:
    """Compares releases in pairs of fresh starts next to each other; no start is in two pairs."""

    def __init__(self, measured: ReleaseStarts, most_pairs: int) -> None:
        self._measured, self._most_pairs = measured, most_pairs
        self._starts: Counter[str] = Counter()

    def compare(self, old: str, new: str, asked_percent: float) -> ComparedReleases:
        """Two releases, with as many pairs as an interval of ± `asked_percent` takes; the old one is prepared.

        `Skipped` if the new one cannot be served, or if no starts are next to each other.
        """
        self._measured.prepare(new)
        pairs: list[ProofPair] = []
        needed = FIRST_PAIRS
        left_out = 0
        while len(pairs) < needed:
            order = (BASELINE, WINNER)[:: -1 if len(pairs) % 2 else 1]
            pair = {side: self._start(old if side == BASELINE else new) for side in order}
            first, second = sorted(pair.values(), key=lambda start: start.began)
            if second.began - first.ended > MOST_BETWEEN:
                left_out += 1
                if left_out > MOST_LEFT_OUT:
                    raise Skipped(f"{left_out} pairs were measured more than {MOST_BETWEEN} apart")
                continue
            pairs.append(ProofPair(pair[BASELINE].value, pair[WINNER].value, 1 if order[0] == BASELINE else -1))
            if len(pairs) == needed:
                needed = pairs_wanted(pairs, asked_percent, looks(FIRST_PAIRS, self._most_pairs))
        return ComparedReleases(old, new, pairs, proved_change(pairs))

    def _start(self, version: str) -> ReleaseStart:
        self._starts[version] += 1
        return self._measured.measure(version, self._starts[version] - 1)


def bisect(
    releases: Sequence[str],
    measured: ReleaseStarts,
    *,
    sign: int,
    within_percent: float,
    most_pairs: int,
    tell: Callable[[ComparedReleases], None] = lambda step: None,
) -> Bisection:
    """Searches `releases`, sorted, at least two, for the one that made the objective worse.

    `sign` is 1 where more is better, else -1. `within_percent` is the half width of the interval that the first
    comparison, of the first and the last, aims at. `tell` gets every step. `Skipped` if the first or the last cannot be
    measured.
    """
    found = Bisection(releases)
    pairs = InterleavedPairs(measured, most_pairs)

    def compare(old: str, new: str, asked_percent: float) -> ComparedReleases:
        step = pairs.compare(old, new, asked_percent)
        found.steps.append(step)
        tell(step)
        return step

    good, bad = releases[0], releases[-1]
    measured.prepare(good)
    whole = compare(good, bad, within_percent)
    if whole.gain(sign)[1] >= 0:
        return found
    change = sign * math.log1p(whole.change.value / 100)
    asked_percent = 100 * math.expm1(SHARE_OF_CHANGE * abs(change))
    low, high = 0, len(releases) - 1
    while between := [at for at in range(low + 1, high) if releases[at] not in found.passed_over]:
        at = min(between, key=lambda each: abs(each - (low + high) / 2))
        try:
            step = compare(good, releases[at], asked_percent)
        except Skipped as why:
            found.passed_over[releases[at]] = str(why)
            continue
        worst, best = step.gain(sign)
        if best < change / 2:
            high = at
        elif worst > change / 2:
            low = at
        else:
            found.passed_over[releases[at]] = f"{len(step.pairs)} pairs cannot place it"
    found.last_good, found.suspects = releases[low], list(releases[low + 1 : high + 1])
    if len(found.suspects) == 1:
        step = compare(releases[low], releases[high], asked_percent)
        found.evidence = step if step.gain(sign)[1] < 0 else None
    return found


STUDIES = Path("config/studies")
STAGE = "starts"
_KEPT = ("model", "hardware", "objective", "protocol", "client", "baseline")
"""Parts of the user's study that decide how its baseline is measured."""

Lock = Callable[[str], Path]
"""The lock of a release; `Skipped` if there is none and none can be made."""


def release_lock(engine: str, recipe: str, version: str) -> Path:
    """The lock of a release: a file of envs/, or one that uv resolves now; `Skipped` if neither."""
    for name in (f"{recipe}-{version}", f"{engine}-{version}"):
        if own_or_shipped(Path(), file := Path(f"envs/{name}.lock.txt")).exists():
            return file
    made = Path(f"envs/{recipe}-{version}.lock.txt")
    command: list[str | Path] = [sys.executable, CHECKOUT / "scripts/lock_environment.py"]
    command += ["--name", recipe, "--version", version]
    command += ["--recipes", own_or_shipped(Path(), "envs/recipes.yaml"), "--lock", made]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skipped(f"no lock: {' '.join(done.stderr.split())[-300:]}")
    return made


class ReleaseStarts:
    """Releases of an engine that serve a study's baseline, or its winner.

    `options` are those of `servelab run`. The current folder has `config/` and `results/`.
    """

    def __init__(
        self, study: str, engine: str, lock: Lock, options: list[str], winner: Configuration | None = None
    ) -> None:
        file = STUDIES / f"{study}.yaml"
        self._project = load_project(file, Path())
        self._content: dict[str, Any] = read_yaml(file)
        self._engine, self._name = engine, f"{study}-{engine}"
        self._lock, self._options = lock, options
        if winner:
            self._name += "-winner"
            self._content["baseline"] = winner.model_dump(mode="json")
        elif (own := self._project.study.baseline.engine) != engine:
            raise ConfigError(f"{file}: --engine {engine}: its baseline is served by {own}; name that one")

    def name(self, version: str) -> str:
        """The study of a release."""
        return f"{self._name}-{version}"

    def prepare(self, version: str) -> None:
        """Builds a release's environment, and checks that it serves; `Skipped` if it does not."""
        self._write(version, starts=1)
        sha256 = load_project(STUDIES / f"{self.name(version)}.yaml", Path()).environment_sha256(self._engine)
        environment = f"results/envs/{self._project.engine(self._engine).name}-{sha256[:12]}"
        done = self._snakemake(version, f"{environment}/environment.json")
        if done.returncode != 0:
            raise Skipped(f"no environment: {_reason(done.stdout)}")

    def measure(self, version: str, number: int) -> ReleaseStart:
        """Start `number` (from 0) of a release, measured now or before; `Skipped` if it cannot be served."""
        self._write(version, starts=number + 1)
        folder = Path("results/studies") / self.name(version) / "stages" / STAGE
        done = self._snakemake(version, f"{folder}/table.parquet")
        if done.returncode != 0:
            raise Skipped(_reason(done.stdout))
        row = read_table(folder / "table.parquet").iloc[0]
        runs = {run.start: run.run_id for run in Plan.read(folder / "plan.json").candidates[0].measured_runs}
        status = RunStatus.read(Path("results/runs") / runs[f"search-{number}"] / "status.json")
        if not status.is_ok:
            raise NotServed(f"{status.reason}: {status.message}")
        if row["validity"] == "invalid":
            raise NotServed(f"its runs are not valid: {row['validity_note']}")
        value = statistics.fmean(status.objective_rounds)
        print(f"{self._engine} {version}, start {number + 1}: {figure(value)}", file=sys.stderr, flush=True)
        return ReleaseStart(
            value, datetime.fromisoformat(status.started_at), datetime.fromisoformat(status.finished_at)
        )

    def _write(self, version: str, starts: int) -> None:
        """Writes the study of a release; one that is as it should be is not touched."""
        on, metric = self._project.study.objective.on, self._project.study.objective.metric
        objective = {key: value for key, value in self._content["objective"].items() if key != "pareto"}
        engine = dict(self._content["engines"][self._engine]) | {"version": version, "lock": str(self._lock(version))}
        workloads = self._content["workloads"]
        content = {
            "study": self.name(version),
            "title": f"{self._engine} {version}, for a comparison of releases",
            **{key: self._content[key] for key in _KEPT if key in self._content},
            "objective": objective | {"metric": metric},
            "engines": {self._engine: engine},
            "search": {"strategy": "staged", "recheck": False, "incumbent_starts": starts},
            "stages": [{"name": STAGE, "candidates": [{"engine": self._engine}]}],
            "workloads": {on: workloads[on]} if isinstance(workloads, dict) else [on],
        }
        text = "# Written by `servelab bisect` or `servelab upgrade`.\n" + yaml.safe_dump(content, sort_keys=False)
        file = STUDIES / f"{self.name(version)}.yaml"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_text(file, text)

    def _snakemake(self, version: str, target: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(CHECKOUT / "scripts/servelab_command.py"), "run", self.name(version)]
        return subprocess.run(
            [*command, *self._options, "--", target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def _reason(printed: str) -> str:
    """The line that explains why a workflow failed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if line.lower().startswith("error")]
    if not lines:
        raise ServelabError("snakemake ended without a word")
    return (telling or lines)[-1 if not telling else 0][:300]
