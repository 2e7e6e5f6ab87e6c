"""The claims of a publication, in a form that a general rule can recompute from the logs.

A claim names candidates as `<stage>/<candidate>`, workloads and metrics by name, and keeps each number as printed: its
digits give the precision.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, field_validator

from servelab.core.run_spec import Strict
from servelab.metrics.objective import Basis

Statistic = Literal["mean", "median", "p90", "p95", "p99"]
Number = Annotated[str, Field(pattern=r"^[+-]?\d+(\.\d+)?$")]


def decimals(printed: str) -> int:
    """Digits after the point of a printed number."""
    return max(0, -int(Decimal(printed).as_tuple().exponent))


class _Claim(Strict):
    where: str = Field(description="Where it stands in the publication: section, table, row.")
    line: int | None = Field(None, ge=1, description="Its line in the file that was published.")
    note: str | None = Field(None, description="What else is to be said of it, in your words.")


class _PrintedClaim(_Claim):
    printed: Number = Field(description="Number as printed, in quotes, without unit or `%`; a reduction is negative.")

    @field_validator("printed", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if isinstance(value, int | float):  # YAML would drop the zeros that say how exact it is
            raise ValueError(f"put {value} in quotes, with all digits as printed")
        return value

    @property
    def value(self) -> float:
        """The printed number, in the metric's unit or in percent."""
        return float(self.printed)

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed digit: what rounding can have changed."""
        return 0.5 * 10.0 ** -decimals(self.printed)


class _NumberClaim(_PrintedClaim):
    metric: str = Field("total_tokens_per_s", description="Metric; see docs/reference/metrics.md.")
    statistic: Statistic = Field("mean", description="Statistic of the metric; a rate has only its mean.")
    workload: str = Field(description="Workload.")


class FigureClaim(_NumberClaim):
    """A candidate's figure: a cell of a table, or a number in a line."""

    kind: Literal["figure"] = "figure"
    candidate: str = Field(description="Candidate, as `<stage>/<candidate>`.")
    times: int = Field(1, ge=1, description="The publication shows it multiplied by so many deployments of a node.")


class ChangeClaim(_NumberClaim):
    """A change of one candidate against another in percent: 100 × (candidate / against − 1)."""

    kind: Literal["change"] = "change"
    candidate: str = Field(description="The candidate that changed.")
    against: str = Field(description="The candidate it is compared with.")
    basis: Basis = Field("deployment", description="What both figures are brought to before they are compared.")


class DifferenceClaim(_NumberClaim):
    """A difference in the metric's unit: candidate − against."""

    kind: Literal["difference"] = "difference"
    candidate: str = Field(description="The candidate that changed.")
    against: str = Field(description="The candidate it is compared with.")


class SuccessClaim(_PrintedClaim):
    """A success rate in percent: 100 × successful requests / requests."""

    kind: Literal["success_rate"] = "success_rate"
    candidate: str
    workload: str


class OrderClaim(_Claim):
    """A line `A > B > C`: candidates from best to worst by a metric."""

    kind: Literal["order"] = "order"
    candidates: list[str] = Field(min_length=2, description="Candidates, the best one first.")
    metric: str = Field("total_tokens_per_s", description="Metric; its direction is its own.")
    workload: str
    because: str | None = Field(
        None, description="Option that is said to make the best one better; its command must have it, the others' not."
    )


class ChosenClaim(_Claim):
    """The candidate that a stage ends with, and the search goes on with."""

    kind: Literal["chosen"] = "chosen"
    stage: str
    candidate: str = Field(description="Candidate, of this stage or of an earlier one where nothing was gained.")


class RecommendedClaim(_Claim):
    """The serving command that the publication recommends."""

    kind: Literal["recommended"] = "recommended"
    command: str


class AcceleratorsClaim(_Claim):
    """How many accelerators the publication says a deployment used at most."""

    kind: Literal["accelerators"] = "accelerators"
    count: int = Field(ge=1)


_Pair = ChangeClaim | DifferenceClaim
Claim = Annotated[
    FigureClaim | _Pair | SuccessClaim | OrderClaim | ChosenClaim | RecommendedClaim | AcceleratorsClaim,
    Field(discriminator="kind"),
]


def candidates_of(claim: Claim) -> list[str]:
    """The candidates a claim names, as `<stage>/<candidate>`."""
    if isinstance(claim, OrderClaim):
        return claim.candidates
    return [name for key in ("candidate", "against") if (name := getattr(claim, key, None)) is not None]
