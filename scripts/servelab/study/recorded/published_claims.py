"""What a publication claims, in a form that a general rule can recompute from the logs.

A claim names candidates as `<stage>/<candidate>`, workloads and metrics by name, and keeps each number as printed: its
digits give the precision.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from servelab.core.run_spec import Strict
from servelab.metrics.definitions import METRICS
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
    def scale(self) -> float:
        """Factor from the printed number to the metric's unit."""
        return 1.0

    @property
    def value(self) -> float:
        """The printed number, in the metric's unit; of a change in percent."""
        return float(self.printed) * self.scale

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed digit, in the unit of `value`: what rounding can have changed."""
        return 0.5 * 10.0 ** -decimals(self.printed) * self.scale


class _NumberClaim(_PrintedClaim):
    metric: str = Field("total_tokens_per_s", description="Metric; see docs/reference/metrics.md.")
    statistic: Statistic = Field("mean", description="Statistic of the metric; a rate has only its mean.")
    workload: str = Field(description="Workload.")


class _FigureClaim(_NumberClaim):
    unit: Literal["s"] | None = Field(
        None, description="`s` if the number is in seconds and the metric in milliseconds; null for the metric's unit."
    )

    @model_validator(mode="after")
    def _is_of_milliseconds(self) -> Self:
        if self.unit is not None and not self.metric.endswith("_ms"):
            raise ValueError(f"unit: seconds are printed for a metric in milliseconds, {self.metric} is none")
        return self

    @property
    def scale(self) -> float:
        """See `_PrintedClaim.scale`."""
        return 1.0 if self.unit is None else 1000.0


class FigureClaim(_FigureClaim):
    """A candidate's figure: a cell of a table, or a number in a line."""

    kind: Literal["figure"] = "figure"
    candidate: str = Field(description="Candidate, as `<stage>/<candidate>`.")
    times: int = Field(1, ge=1, description="The publication shows it multiplied by so many deployments of a node.")


class ChangeClaim(_NumberClaim):
    """A change of one candidate against another: 100 × (candidate / against − 1) percent, or a number of times."""

    kind: Literal["change"] = "change"
    candidate: str = Field(description="The candidate that changed.")
    against: str = Field(description="The candidate it is compared with.")
    basis: Basis = Field("deployment", description="What both figures are brought to before they are compared.")
    unit: Literal["x"] | None = Field(
        None,
        description="`x` if the number is how many times as good it is (`1.50x faster`): candidate / against, or "
        "against / candidate where lower is better; null for percent.",
    )

    @model_validator(mode="after")
    def _is_above_zero(self) -> Self:
        if self.unit is not None and float(self.printed) - super().half_unit <= 0:
            raise ValueError(f"printed: {self.printed} times is no ratio of two figures")
        return self

    @property
    def value(self) -> float:
        """The printed number in percent."""
        return self._percent(float(self.printed))

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed digit, in percent."""
        half, printed = super().half_unit, float(self.printed)
        return max(abs(self._percent(printed + sign * half) - self.value) for sign in (-1, 1))

    def as_printed(self, change_percent: float) -> float:
        """A change as the claim prints it."""
        quotient = 1 + change_percent / 100
        if self.unit is None:
            return change_percent
        return 1 / quotient if self._is_lower_better and quotient else quotient

    def _percent(self, number: float) -> float:
        if self.unit is None:
            return number
        return 100 * ((1 / number if self._is_lower_better else number) - 1)

    @property
    def _is_lower_better(self) -> bool:
        return METRICS.get(self.metric).higher_is_better is False


class DifferenceClaim(_FigureClaim):
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
