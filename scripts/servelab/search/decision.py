"""Result of a stage as data: verdicts and the decision."""

from __future__ import annotations

from pydantic import Field

from servelab.core.json_file import FiniteOrNull, JsonFile, JsonPart


class Verdict(JsonPart):
    """Verdict on one candidate; the change is against the incumbent, on the study's basis."""

    candidate: str = Field(description="Name of the candidate.")
    run_id: str | None = Field(None, description="Its run; null if it has none.")
    outcome: str = Field("ok", description="`ok`, `failed` or `not run`.")
    verdict: str = Field(description="`incumbent`, `winner`, `within noise`, `worse`, `cannot tell`, … (search.md).")
    change_percent: float | None = Field(description="Change of the objective; null if there is none.")
    change_ci95_low_percent: FiniteOrNull = Field(description="Lower end of its 95 % interval; null if unbounded.")
    change_ci95_high_percent: FiniteOrNull = Field(description="Upper end of it.")
    unequal_places: str | None = Field(
        None, description="How its place differs from the incumbent's, such as in the driver; null if it does not."
    )
    why: str = Field(description="Reason for the verdict.")


class Choice(JsonPart):
    """A candidate by name and run."""

    candidate: str = Field(description="Name of the candidate.")
    run_id: str | None = Field(None, description="Its run; null if it has none.")


class Decision(JsonFile):
    """`decision.json`: the outcome of a stage."""

    study: str = Field(description="Study.")
    stage: str = Field(description="Stage.")
    title: str = Field(description="Its heading.")
    applies: bool = Field(description="Whether it applied to the incumbent.")
    reason: str = Field(description="Why it ended so.")
    incumbent: Choice = Field(description="Where the stage started.")
    winner: Choice = Field(description="Where it ended.")
    changed: bool = Field(description="Whether these two differ.")
    unequal_places: str | None = Field(
        None, description="A warning: how the places of the runs compared differ; null if they do not (devices.md)."
    )
    objective: str = Field(description="Metric the study improves.")
    margin_percent: float = Field(description="Smaller gains do not change the incumbent.")
    candidates: list[Verdict] = Field(description="Verdict on each candidate; changes are against the incumbent.")
    survivors: tuple[str, ...] = Field(
        (),
        description="Candidates that advance to the next stage with a longer load, the best first, if the search "
        "halves; empty otherwise.",
    )
