"""Cost of tokens at the study's price of an accelerator-hour: one observation per round."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric

_PRICE = "`hardware.price_per_accelerator_hour` × accelerators of the run × duration / 3,600"


@metric(
    "cost_per_million_tokens",
    title="Cost per million tokens",
    unit="the currency of `hardware.price_per_accelerator_hour`",
    formula=f"{_PRICE} / (input tokens + output tokens) of successful requests × 1,000,000; no observation without a "
    f"price. Serving under this load only: a server's start and idle time are not included",
    equals="none",
    higher_is_better=False,
    needs_price=True,
    measured_as="total_tokens_per_s",
    based_on=("input_tokens_per_s", "output_tokens_per_s"),
)
def _cost_per_million_tokens(data: Round) -> Observations:
    return _per_million(data, data.tokens)


@metric(
    "cost_per_million_output_tokens",
    title="Cost per million output tokens",
    unit="the currency of `hardware.price_per_accelerator_hour`",
    formula=f"{_PRICE} / output tokens of successful requests × 1,000,000; no observation without a price",
    equals="none",
    higher_is_better=False,
    needs_price=True,
    measured_as="output_tokens_per_s",
    based_on=("output_tokens_per_s",),
)
def _cost_per_million_output_tokens(data: Round) -> Observations:
    return _per_million(data, data.output_tokens)


def _per_million(data: Round, tokens: float) -> Observations:
    if data.price_per_hour is None or tokens <= 0:
        return np.empty(0)
    return np.array([data.price_per_hour * data.duration_s / 3600 / tokens * 1e6])
