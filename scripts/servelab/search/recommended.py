"""`recommended.json`: a study's answer, the serving command to use and what its proof found on every workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from servelab.core.files import FiniteOrNull, JsonFile, JsonPart
from servelab.metrics.objective import Basis
from servelab.results.answers import AnswersFound
from servelab.search.decision import Row
from servelab.search.proof import FAILED, WORSE, ProofVerdict
from servelab.study.configuration import Configuration
from servelab.study.plan import LeftOut
from servelab.study.project import SearchedPlan, SearchedStudy
from servelab.study.recorded.commands import same_command
from servelab.study.recorded.plan import RecordedPlanCandidate
from servelab.study.recorded.study import RecordedStudy

Candidate = TypeVar("Candidate")

PROVED = "proof"
NOTHING_TO_PROVE = "nothing to prove"
FROM_LOGS = "from logs: not proved"
"""The evidence for an answer."""

Checks = Annotated[str | None, Field(description="Checks of its runs: `ok`, `suspect` or `invalid`, the worst.")]
BaselineChecks = Annotated[str | None, Field(description="Checks of the baseline's runs.")]
ChecksNote = Annotated[str | None, Field(description="What the checks that are not ok found.")]


class Improvement(JsonPart):
    """The winner of the search against the baseline on one workload: from the proof, or from logs if recorded."""

    workload: str = Field(description="Workload.")
    title: str = Field(description="Its title.")
    metric: str = Field(description="Metric the study improves.")
    basis: Basis = Field(description="Basis of the values.")
    extrapolated: bool = Field(False, description="Whether the values are computed for more deployments than ran.")
    baseline_value: FiniteOrNull = Field(description="The baseline's value, in the metric's unit.")
    value: FiniteOrNull = Field(description="The winner's value.")
    change_percent: FiniteOrNull = Field(description="Change of the winner on the baseline; null if `failed`.")
    change_ci95_low_percent: FiniteOrNull = Field(description="Lower end of its 95 % interval; null if unbounded.")
    change_ci95_high_percent: FiniteOrNull = Field(description="Upper end of it.")
    n: int = Field(description="Pairs of server starts that were compared; if recorded, logs of the winner.")
    verdict: str | None = Field(
        None, description="What the proof found here, one of the verdicts of docs/search.md; of logs, by the margin."
    )
    verdict_why: str = Field("", description="Why.")
    smallest_change_percent: FiniteOrNull = Field(
        None, description="Smallest change that the proof could have seen here; null without an interval."
    )
    unequal_places: str | None = Field(
        None, description="A warning: how the places of the runs compared differ; null if they do not (cluster.md)."
    )
    failed: str | None = Field(None, description="Why the two cannot be compared; null if they can.")
    validity: Checks = None
    validity_note: ChecksNote = None
    baseline_validity: BaselineChecks = None
    baseline_validity_note: ChecksNote = None


class Proof(ProofVerdict):
    """The proof of what the search proposed, on the workload that decides."""

    wanted_half_width_percent: float | None = Field(
        description="Half width that its interval was to reach; null if neither the study nor the search gave one."
    )
    candidate: str | None = Field(None, description="Name of what was proposed, as the search has it.")
    proposed: Configuration = Field(
        description="What the search proposed; recommended only if the verdict is `better`."
    )
    proposed_command: str = Field(description="Its serving command, as it was started in the proof.")
    proposed_run_id: str = Field(description="Its first run of the proof.")
    workloads: list[Improvement] = Field(description="What the proof found on every workload.")


class ChangedAnswers(LeftOut):
    """A candidate that was faster where the search compared it, but changes answers there or in its proof."""

    stage: str = Field(description="Stage.")


class FrontPoint(JsonPart):
    """A configuration that no other of the search beats by both objectives; its figures chose it and are no claim."""

    candidate: str = Field(description="Its name in the search.")
    run_id: str = Field(description="Its first run.")
    value: float = Field(description="The first objective, the mean of its server starts.")
    second_value: float = Field(description="The second one.")


class MapLevel(JsonPart):
    """A measured load of a curve, and how the winner compares with the baseline there."""

    load: float = Field(description="The load: most requests in flight, or requests/s.")
    workload: str = Field(description="Name of the point.")
    best: list[str] = Field(description="The better side; `baseline` and `winner` if they cannot be told apart.")
    pairs: int = Field(description="Pairs of server starts that were compared.")
    change_percent: FiniteOrNull = Field(description="Change of the winner on the baseline; null without pairs.")
    change_ci95_low_percent: FiniteOrNull = Field(description="Lower end of its 95 % interval; null below two pairs.")
    change_ci95_high_percent: FiniteOrNull = Field(description="Upper end of it.")
    why: str = Field("", description="Why a side cannot be used there; empty if both can.")
    is_suspect: bool = Field(False, description="Whether a check found the runs of a side suspect.")


class MapRange(JsonPart):
    """Loads at which one side is the better one, or at which the two cannot be told apart."""

    best: list[str] = Field(description="The better side; `baseline` and `winner` if they cannot be told apart.")
    from_load: float = Field(description="Where it begins.")
    to_load: float = Field(description="Where it ends.")


class WinnerMap(JsonPart):
    """Which configuration is the best from which load on, for one curve."""

    curve: str = Field(description="The workload with several loads.")
    load: str = Field(description="What its points differ in: `max_concurrency` or `request_rate`.")
    metric: str = Field(description="Metric that is compared.")
    basis: Basis = Field(description="Basis of its values.")
    text: str = Field(description="The map in words.")
    levels: list[MapLevel] = Field(description="The measured loads, from the proof.")
    ranges: list[MapRange] = Field(description="From the lowest measured load to the highest, without gaps; proved.")


class Recommended(JsonFile):
    """`recommended.json`; validity is that of the workload that decides."""

    study: str = Field(description="Study.")
    command: str = Field(description="The serving command to use.")
    launch_command: str | None = Field(description="The command as it ran here; null if nothing ran.")
    deployment: dict[str, str] = Field(
        {},
        exclude_if=lambda value: not value,
        description="Of several servers: `script`, `sbatch` and, of a container's image, `compose` → the text that "
        "starts all of them and their balancer; missing for one server.",
    )
    note: str | None = Field(
        None,
        description="What differs from the baseline as the engine serves it; a warning if the weights are not the "
        "model's own, or if figures of a recorded study are not this command's.",
    )
    engine: str = Field(description="Engine.")
    engine_version: str = Field(description="Engine's version.")
    model: str = Field(description="Model that it serves.")
    served_on: str | None = Field(
        None,
        description="What it was served on, as found: number and name of its accelerators, or the CPU with how many of "
        "its CPUs it could use; null if nothing ran, or of a server that already ran.",
    )
    environment_variables: dict[str, str] = Field(description="Environment variables of the server.")
    configuration: Configuration
    changed: bool = Field(description="Whether it differs from the baseline.")
    baseline_unfit: str | None = Field(
        None, description="Why the baseline cannot be used, where no candidate can either; null otherwise."
    )
    evidence: str = Field(
        FROM_LOGS,
        description="What the answer rests on: `proof`; `nothing to prove` if the search found nothing better than the "
        "baseline; `from logs: not proved` of a recorded study.",
    )
    proof: Proof | None = Field(
        None, description="The proof of what the search proposed; null if it proposed nothing, and if recorded."
    )
    objective: str = Field(description="Metric the study improves.")
    per: Basis = Field(description="Basis of its figures: `deployment`, `accelerator` or `node`.")
    improvements: list[Improvement] = Field(
        description="Its change on the baseline, by workload; empty if the baseline is recommended."
    )
    answers: AnswersFound | None = Field(
        None, description="Its answers against the baseline's, on the same server starts; null if not measured."
    )
    untold: list[str] = Field(
        [], description="Candidates that the search could not judge, because runs were disturbed."
    )
    changed_answers: list[ChangedAnswers] = Field(
        [], description="Faster candidates that cannot win because they change answers."
    )
    winner_maps: list[WinnerMap] = Field(
        [], description="Which configuration is the best from which load on, for each curve; empty without curves."
    )
    second: Recommended | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Of two objectives (`objective.pareto`): the answer by the second one.",
    )
    front: list[FrontPoint] = Field(
        [],
        exclude_if=lambda value: not value,
        description="Of two objectives: what no other configuration of the search beats by both, the best by the first "
        "one first. Only the answers are proved.",
    )
    validity: Checks = None
    validity_note: ChecksNote = None
    baseline_validity: BaselineChecks = None
    baseline_validity_note: ChecksNote = None
    run_id: str = Field(description="Its first run on the workload that decides.")
    baseline_run_id: str = Field(description="The baseline's first run on it.")

    @property
    def losses(self) -> list[Improvement]:
        """The workloads on which the winner is worse than the baseline, or one of the two failed."""
        return [row for row in self.improvements if row.verdict in (WORSE, FAILED)]

    @property
    def answers_text(self) -> list[str]:
        """The findings about answers, and the faster candidates that change them: one sentence each."""
        if self.answers is None:
            first = "Answers: not measured."
        elif self.changed:
            first = f"Answers: {self.answers.why}."
        else:
            graded = f": {self.answers.right} of {self.answers.graded} questions right" if self.answers.graded else ""
            first = f"Answers: the baseline's own{graded}."
        lines = [first]
        for each in self.changed_answers:
            though = "" if each.change_percent is None else f", though {each.change_percent:+.1f} % in the search"
            lines.append(f"Not recommended{though}: {each.candidate} changes answers: {each.why}.")
        return lines

    def improvement(self, workload: str) -> Improvement | None:
        """The improvement on a workload."""
        return next((each for each in self.improvements if each.workload == workload), None)


def recommended_of(candidates: Sequence[Candidate], changed: bool) -> Candidate:
    """The recommended candidate of the last stage: the proposal, listed last, if `changed`; else the baseline."""
    return candidates[-1 if changed else 0]


def measurement_note(study: SearchedStudy, last: SearchedPlan, changed: bool, rows: Sequence[Row]) -> str | None:
    """A sentence for each way in which the recommended command was not measured; None if it was, or in a live study.

    `last` is the plan of the last stage, `changed` whether its winner is recommended, `rows` the answer's rows of its
    table, one per workload.
    """
    answer = recommended_of(last.candidates, changed)
    if not isinstance(study, RecordedStudy) or not isinstance(answer, RecordedPlanCandidate):
        return None
    on, names = study.objective.on, study.model_names
    parts = [
        f"This command has no measurement on {on}: {row['reason']}: {row['message']}."
        for row in rows
        if row["workload"] == on and row["outcome"] != "ok"
    ]
    published = study.candidates[answer.reference].command
    if not same_command(published, answer.command, names):
        parts.append(f"Published for it is another command, which was never run on {on}: {published}")
    parts += [
        f"Its figures on {row['workload']} are of another command: {row['command']}"
        for row in rows
        if not same_command(str(row["command"]), answer.command, names)
    ]
    return " ".join(parts) or None
