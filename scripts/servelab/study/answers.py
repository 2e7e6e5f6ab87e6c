"""The key `answers` of a study: questions that candidates answer, and what their answers may lose."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from servelab.answers.comparison import Allowed
from servelab.core.run_spec import ProtocolSpec, Strict


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
    least_agreement_percent: float | None = Field(
        None, gt=0, le=100, description="Least share of answers that equal the baseline's; null for no limit."
    )
    most_kl_nats: float | None = Field(
        None,
        gt=0,
        description="Largest mean KL divergence of the answers' first token from the baseline's, in nats; null for no "
        "limit. Of engines that print log-probabilities (docs/answers.md).",
    )
    of: Literal["changes", "all"] = Field(
        "changes",
        description="`changes`: the baseline, candidates with other weights, another engine, or a setting that may "
        "change answers (docs/support.md), and both sides of the proof. `all`: every candidate.",
    )
    max_concurrency: int = Field(4, ge=1, le=1024, description="Questions in flight.")
    endpoint: Literal["chat", "completions"] = Field(
        "completions", description="OpenAI endpoint that is asked: `chat` for questions of your own with `messages`."
    )

    @property
    def allowed(self) -> Allowed:
        """What a candidate may lose."""
        return Allowed(
            task_loss_points=self.allowed_loss_points,
            least_agreement_percent=self.least_agreement_percent,
            most_kl_nats=self.most_kl_nats,
        )

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


def none_if_named(given: object) -> object:
    """`answers: none` is the same as no key."""
    return None if given == "none" else given
