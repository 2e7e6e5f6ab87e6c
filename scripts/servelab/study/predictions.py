"""Predicted speeds of a study's combinations: never measured, and never shown among measured figures."""

from __future__ import annotations

from pydantic import Field

from servelab.core.files import JsonFile, JsonPart

OBJECTIVES = ("total_tokens_per_s", "output_tokens_per_s", "ttft_ms", "tpot_ms")
"""Metrics that are predicted."""
KERNEL_TIMINGS = "kernel-timings"


class Predicted(JsonPart):
    """Predicted figures of one configuration under the workload that decides, of the deployment as run."""

    total_tokens_per_s: float = Field(description="Tokens of prompts and answers per second.")
    output_tokens_per_s: float = Field(description="Tokens of answers per second.")
    ttft_ms: float = Field(description="Mean time to the first token, waiting included.")
    tpot_ms: float = Field(description="Mean time per output token.")
    source: str = Field(description="`kernel-timings`, or `roofline` where they have no table.")
    error_percent: float = Field(description="Expected to be within it in 95 %, after one scale for each engine.")


class Predictions(JsonFile):
    """`predicted.json`: figures by the canonical JSON of a configuration; without what nothing predicts."""

    values: dict[str, float] = Field(description="Configuration → predicted value of the objective.")
    figures: dict[str, Predicted] = Field({}, description="Configuration → predicted figures.")
    error: float = Field(description="Standard deviation of their logarithms, after one scale for each engine.")
    source: str = Field("", description="Tables, release and licence.")
    refused: list[str] = Field([], description="Tables that are not used, with the reason.")
