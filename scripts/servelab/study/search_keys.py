"""The keys of a study that say how its candidates are searched, asked questions and proved."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from servelab.answers.comparison import Allowed
from servelab.core.run_spec import ProtocolSpec, Strict


class SearchKeys(Strict):
    """How candidates are searched; docs/search.md explains it."""

    strategy: str = Field(
        "adaptive",
        description="`adaptive`: a few combinations of the stages' candidates, then those that a model expects to be "
        "best. `staged`: stage by stage, each on the last winner. `grid`: every combination.",
    )
    recheck: bool = Field(
        True,
        description="For `staged`: at the end, compare the winner with itself with each stage's choice reverted, and "
        "drop choices that no longer help. This takes one run less than there are stages that changed something.",
    )
    incumbent_starts: int = Field(
        2, ge=1, description="Server starts on which a stage's incumbent is measured; its candidates have one each."
    )
    visits: int | None = Field(
        None,
        ge=2,
        description="For `adaptive`: most configurations that the search measures, the baseline included. Default: 8 "
        "to 60, depending on the number of combinations: 18 of 48, 60 of 1,000.",
    )
    prior: Literal["kernel-timings"] | None = Field(
        None,
        description="For `adaptive`: `kernel-timings` orders what is measured by predicted speeds and decides nothing. "
        "It takes an environment of its own (docs/search.md).",
    )
    batch: int | None = Field(
        None,
        ge=1,
        description="For `adaptive`: configurations that a stage after the design adds, which can run at the same time "
        "on several accelerators. Default: so many that there are at most twenty such stages.",
    )


class Budget(Strict):
    """The most that a study may cost, search and proof together."""

    accelerator_hours: float = Field(
        gt=0,
        description="The search leaves out candidates so that the proof's first pairs are within it; the proof has as "
        "many pairs as the rest allows. The first stage and the first pairs are always measured.",
    )


class ProofKeys(Strict):
    """How the winner of the search is proved: pairs of fresh server starts, baseline and winner."""

    pairs: int = Field(3, ge=3, description="Pairs measured first; their scatter says how many are needed.")
    most_pairs: int = Field(8, ge=3, description="Most pairs.")
    within_percent: float | None = Field(
        None,
        gt=0,
        description="Half width of the 95 % interval that the proof is to reach. Default: half of the gain that the "
        "search found, at least 2.",
    )
    fills_node: bool = Field(
        False,
        description="With `objective.per: node`: serve baseline and winner as often as fit on the node (`replicas`), "
        "and measure the whole under the load as it is written. False multiplies the figure of one, which the report "
        "calls extrapolated.",
    )


class Answers(Strict):
    """Questions on the server start that is timed, right after its load; what they take is in no speed."""

    questions: str = Field(
        "embedded",
        description="`embedded`: short questions that come with Servelab. `gsm8k`: its published test file. `own`: a "
        "JSON lines file of yours (docs/search.md#answers).",
    )
    dataset: str | None = Field(
        None,
        description="The file of `gsm8k` or `own`: a name in config/datasets.yaml. Default: that of the same name.",
    )
    num_questions: int = Field(60, ge=1, le=4_000, description="How many of them.")
    allowed_loss_points: float = Field(
        2.0,
        ge=0,
        lt=100,
        description="How many percentage points of right answers a candidate may lose against the baseline.",
    )
    of: Literal["changes", "all"] = Field(
        "changes",
        description="`changes`: the baseline, candidates with other weights, another engine, or a setting that may "
        "change answers (docs/reference/options.md), and both sides of the proof. `all`: every candidate.",
    )
    max_concurrency: int = Field(4, ge=1, le=1024, description="Questions in flight.")
    endpoint: Literal["chat", "completions"] = Field(
        "completions", description="OpenAI endpoint that is asked: `chat` for questions of your own with `messages`."
    )

    @property
    def allowed(self) -> Allowed:
        """The losses that a candidate may have."""
        return Allowed(task_loss_points=self.allowed_loss_points)

    def protocol(self, whole: ProtocolSpec) -> ProtocolSpec:
        """How they are sent, with the study's time limits: all of them once, and never again."""
        return ProtocolSpec(
            warmup_requests=0,
            rounds=1,
            max_concurrency=self.max_concurrency,
            repeat_disturbed=0,
            startup_timeout_s=whole.startup_timeout_s,
            round_timeout_s=whole.round_timeout_s,
        )
