"""A stage's plan as data: the runs of the incumbent and of every candidate, each with its complete specification."""

from __future__ import annotations

from pydantic import Field

from servelab.core.files import FiniteOrNull, JsonFile, JsonPart
from servelab.core.run_spec import RunSpec
from servelab.study.configuration import Configuration, Incumbent

ANSWERS = "answers"
"""Stands for the workload of the runs that were asked questions."""

SEARCH, PROOF = "search-", "proof-"
"""Beginnings of start labels: of the search, and of the proof, whose equal labels are a pair.

Labels of a proof also name its winner: the baseline's starts of another proof are in no job with this winner's."""


class PlannedRun(JsonPart):
    """One run: a configuration under one workload, on one server start."""

    workload: str = Field(description="Workload, or the name of a part of it (`Load.name`).")
    start: str = Field(description="Which repetition it is, such as `search-0`; part of its identity.")
    run_id: str = Field(description="Run: a hash of its specification.")
    spec: RunSpec = Field(description="Its specification, as in `spec.json`.")
    level: float | None = Field(
        None, description="Its place on a curve that decides: the lowest is measured first; null elsewhere."
    )

    @property
    def load_size(self) -> int:
        """Most requests that it sends; scales the time of runs with different loads."""
        return int(self.spec.workload.parameters["num_requests"]) * self.spec.protocol.rounds


class PlannedCandidate(JsonPart):
    """A configuration of a stage; it has no runs if it is refused or not run."""

    candidate: str = Field(description="Name of the candidate.")
    is_incumbent: bool = Field(description="Whether the stage starts from it.")
    configuration: Configuration
    changes: dict[str, object] = Field(description="What it changes on the incumbent.")
    command: str = Field(description="Serving command.")
    refused: str | None = Field(description="Why it cannot run at all; null if it can.")
    not_run: str | None = Field(None, description="Why the search skips it; null if it does not.")
    runs: list[PlannedRun] = Field(description="Its runs; none if it is refused or not run.")
    points: list[PlannedRun] = Field(
        [], description="Its runs at the other points of the curve that decides; nothing is decided at these."
    )

    answers: list[PlannedRun] = Field([], description="Its runs that are asked questions, one for each server start.")

    @property
    def measured_runs(self) -> list[PlannedRun]:
        """All its runs in the order of measurement, start by start; the lowest point of each start is first.

        The questions of a start come last, so that its load finds the server as it would without them.
        """
        if not self.points and not self.answers:
            return list(self.runs)
        starts = list(dict.fromkeys(run.start for run in self.runs))
        loads = sorted([*self.runs, *self.points], key=lambda run: (starts.index(run.start), run.level or 0.0))
        return sorted([*loads, *self.answers], key=lambda run: starts.index(run.start))  # stable


class LeftOut(JsonPart):
    """The proposal of the search that is not proved to the end: its answers changed in the first pairs of its proof."""

    candidate: str = Field(description="Name of the candidate.")
    change_percent: FiniteOrNull = Field(description="Change that the search found; null if it has none.")
    why: str = Field(description="What its answers lost.")


class Plan(JsonFile):
    """`plan.json`. The first candidate is the incumbent; a stage that does not apply has no other candidate."""

    study: str = Field(description="Study.")
    stage: str = Field(description="Stage.")
    title: str = Field(description="Its heading.")
    applies: bool = Field(description="Whether it applies to the incumbent.")
    reason: str = Field(description="Why not; empty if it does.")
    candidates: list[PlannedCandidate] = Field(description="Candidates, the incumbent first.")
    baseline_answers: list[PlannedRun] = Field(
        [], description="The baseline's runs, of this stage or an earlier one, with which answers are compared."
    )
    proposed: str | None = Field(None, description="In a proof: name of the candidate that is its winner.")
    expected: str | None = Field(None, description="In `confirm-first`: what the proof can find of the promised gain.")
    limited: str | None = Field(None, description="In a proof: how the study's budget ended it early; null if not.")
    predicted: list[str] = Field(
        [], description="What a prior leaves out, each with its prediction; nothing of it was measured."
    )
    left_out: LeftOut | None = Field(
        None, description="In `confirm`: what `confirm-first` found to change answers; the next best is proved instead."
    )

    def jobs(self) -> list[list[list[PlannedRun]]]:
        """The runs of each measuring job: its visits, and the runs of each visit, in the order of measurement.

        A visit is one server start, which serves all runs of a candidate with one start label. A job is one visit; of a
        proof, a pair: the visits of both candidates with one label. Every other pair begins with the winner.
        """
        visits: dict[tuple[str, int], list[PlannedRun]] = {}
        for position, candidate in enumerate(self.candidates):
            for run in candidate.measured_runs:
                visits.setdefault((run.start, position), []).append(run)
        jobs: dict[tuple[str, int | None], list[list[PlannedRun]]] = {}
        for (start, position), runs in visits.items():
            jobs.setdefault((start, None if start.startswith(PROOF) else position), []).append(runs)
        turned = {start for start, _ in jobs if start.startswith(PROOF) and order_of(start) < 0}
        return [job[::-1] if start in turned else job for (start, _), job in jobs.items()]

    def run_ids(self) -> list[str]:
        """Ids of the plan's runs, without duplicates, in order."""
        return list(dict.fromkeys(run.run_id for candidate in self.candidates for run in candidate.measured_runs))


def order_of(start: str) -> int:
    """The order of a pair of the proof, by its label: 1 if the baseline is started first, -1 if the winner is."""
    return -1 if int(start.rpartition("-")[2]) % 2 else 1


def winner_of(plan: Plan, name: str) -> Incumbent:
    """The candidate of a plan with this name, as the next stage's incumbent."""
    chosen = next(candidate for candidate in plan.candidates if candidate.candidate == name)
    return Incumbent(candidate=chosen.candidate, configuration=chosen.configuration)
