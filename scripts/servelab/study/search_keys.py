"""The keys of a study that say how its candidates are searched, and how the winner is proved."""

from __future__ import annotations

from pydantic import Field

from servelab.core.run_spec import Strict


class StopWhen(Strict):
    """What ends a search before its last stage; baseline and winner are still compared."""

    accelerator_hours: float | None = Field(
        None,
        gt=0,
        description="Budget of the search: a stage leaves out its last candidates if the hours of the stages before "
        "it, and those its own runs will take by the mean, exceed it.",
    )
    objective_reached: float | None = Field(
        None, description="End the search when the incumbent's objective is as good as this, on the study's basis."
    )
    slo_reached: float | None = Field(
        None,
        gt=0,
        le=1,
        description="End the search when this share of the incumbent's requests meets `objective.slos`.",
    )

    @property
    def given(self) -> list[str]:
        """Names of the conditions that the study sets."""
        return [name for name in type(self).model_fields if getattr(self, name) is not None]


class Search(Strict):
    """How candidates are searched; docs/search.md explains it."""

    strategy: str = Field(
        "adaptive",
        description="`adaptive`: a few combinations of the stages' candidates, then those that a model expects to be "
        "best. `staged`: stage by stage, each on the last winner. `grid`: every combination. `halving`: every "
        "combination with a short load, the best ones with longer ones.",
    )
    recheck: bool = Field(
        True,
        description="For `staged`: at the end, compare the winner with itself with each stage's choice reverted, and "
        "drop choices that no longer help. This takes one run less than there are stages that changed something.",
    )
    eta: int = Field(
        4,
        ge=2,
        description="For `halving`: one in `eta` candidates of a rung advances, and the next load is `eta` times as "
        "long.",
    )
    rungs: int = Field(3, ge=2, le=6, description="For `halving`: number of loads; the last is the whole workload.")
    incumbent_starts: int = Field(
        2, ge=1, description="Server starts on which a stage's incumbent is measured; its candidates have one each."
    )
    visits: int | None = Field(
        None,
        ge=2,
        description="For `adaptive`: most configurations that the search measures, the baseline included. Default: 8 "
        "to 100, depending on the number of combinations: 14 of 48, 77 of 1,000.",
    )
    batch: int | None = Field(
        None,
        ge=1,
        description="For `adaptive`: configurations that a stage after the design adds, which can run at the same time "
        "on several accelerators. Default: so many that there are at most fifteen such stages.",
    )
    stop_when: StopWhen = StopWhen()


class Proof(Strict):
    """How the winner of the search is proved: pairs of fresh server starts, baseline and winner."""

    pairs: int = Field(3, ge=3, description="Pairs measured first; their scatter says how many are needed.")
    most_pairs: int = Field(8, ge=3, description="Most pairs.")
    within_percent: float | None = Field(
        None,
        gt=0,
        description="Half width of the 95 % interval that the proof is to reach. Default: half of the gain that the "
        "search found, at least 2.",
    )
