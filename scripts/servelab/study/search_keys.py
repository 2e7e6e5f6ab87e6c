"""The keys of a study that say what is improved, and how candidates are searched, asked questions and proved."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from servelab.core.run_spec import ProtocolSpec, Statistic, Strict
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import Basis


class Objective(Strict):
    """The figure to improve, and by how much."""

    metric: str = Field("total_tokens_per_s", description="Metric to improve; the metric defines which way is better.")
    pareto: list[str] = Field(
        [],
        exclude_if=lambda value: not value,
        description="In place of `metric`, two metrics: `[total_tokens_per_s, ttft_ms.p99]`. The first one is then "
        "`metric`, the second one may name a statistic. What is best in each is proved (docs/search.md#objectives).",
    )
    per: Basis = Field(
        "accelerator",
        description="`deployment`: as run; `accelerator`: divided by the accelerators used; `node`: times the "
        "deployments that fit a node.",
    )
    load_per: Literal["deployment", "node"] = Field(
        "deployment",
        exclude_if=lambda value: value == "deployment",
        description="Who is sent the requests in flight, or a second, that a load names: each deployment all of them; "
        "or with `node` its part, as if they were spread over those that fit a node. `arrivals: replay` stays whole.",
    )
    on: str = Field(description="Workload that decides; the others are measured for baseline and winner only.")
    min_success_rate: float = Field(
        0.99,
        ge=0,
        le=1,
        description="A candidate with a lower success rate does not win over one without. An incumbent with a lower "
        "one is replaced only by a candidate that is not slower (docs/search.md).",
    )
    margin_percent: float = Field(2.0, ge=0, description="Smaller differences do not change the incumbent.")
    slos: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {},
        description="Limits for `goodput_per_s`: metric of single requests (`ttft_ms`, `tpot_ms`, `e2el_ms`, …) → "
        "upper limit for a request to count. Another limit reruns nothing unless goodput is the objective.",
    )
    constraints: dict[str, dict[Statistic, Annotated[float, Field(gt=0)]]] = Field(
        {},
        description="Limits that a winner must meet on the workload that decides: metric → statistic (`mean`, "
        "`median`, `p90`, `p95`, `p99`, `minimum`, `maximum`) → limit, `{tpot_ms: {mean: 50}, ttft_ms: {p99: 2000}}`. "
        "An upper limit, or a lower one if higher is better. A percentile must be within its limit with 95 % "
        "confidence, which takes requests (docs/search.md). Another limit reruns nothing.",
    )

    @property
    def sign(self) -> int:
        """1 if a higher value of the metric is better, -1 if a lower one is."""
        return 1 if METRICS.get(self.metric).higher_is_better else -1

    def sharing(self, accelerators: int, per_node: int) -> int:
        """How many deployments on so many accelerators each share a load."""
        return max(1, per_node // accelerators) if self.load_per == "node" else 1

    @property
    def metric_and_basis(self) -> tuple[str, Basis]:
        """The metric and the basis of its values: only rates add up over deployments."""
        return self.metric, self.per if METRICS.get(self.metric).is_rate else "deployment"

    @property
    def measured_metric_and_basis(self) -> tuple[str, Basis]:
        """The metric that a run reports, with its basis: for a cost, which needs a price, the rate it is made from."""
        measured_as = METRICS.get(self.metric).measured_as
        return (measured_as, "accelerator") if measured_as else self.metric_and_basis

    @model_validator(mode="before")
    @classmethod
    def _first_decides(cls, given: Any) -> Any:
        """Of two objectives, the first is `metric`."""
        if not (isinstance(given, dict) and isinstance(two := given.get("pareto"), list) and two):
            return given
        found = re.fullmatch(rf"(\w+),(\w+)(\.({'|'.join(get_args(Statistic))}))?", ",".join(map(str, two)))
        if found is None or found[1] == found[2] or given.get("metric", two[0]) != two[0]:
            form = "`[total_tokens_per_s, ttft_ms.p99]`; of the first the mean decides"
            raise ValueError(f"in place of `metric`, `pareto` names two, such as {form}")
        return given | {"metric": two[0]}

    @property
    def second(self) -> Objective | None:
        """The second of two objectives; None if there is one."""
        return self.model_copy(update={"metric": self.pareto[1].partition(".")[0]}) if self.pareto else None

    @property
    def name(self) -> str:
        """The metric, with its statistic if that is no mean."""
        return next((each for each in self.pareto if each.partition(".")[0] == self.metric), self.metric)

    @property
    def statistic(self) -> str:
        """The statistic of a run's observations that is its figure; a mean is that of its rounds."""
        return self.name.partition(".")[2] or "mean"


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
        description="For `adaptive`: most starts that the search takes, the baseline's included. Default: 8 "
        "to 60, depending on the number of combinations: 21 of 48, 60 of 1,000.",
    )
    prior: Literal["kernel-timings"] | None = Field(
        None,
        description="For `adaptive`: `kernel-timings` orders what is measured by predicted speeds, and may leave "
        "out what is predicted far slower. It takes an environment of its own (docs/search.md).",
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
