"""What tokens cost at the study's price of an accelerator-hour: one observation a round."""

from __future__ import annotations

import numpy as np

from servelab.metrics import Observations, Round, metric

_PRICE = "`hardware.price_per_accelerator_hour` × accelerators of the run × duration / 3,600"


@metric(
    "cost_per_million_tokens",
    title="Cost per million tokens",
    unit="the currency of `hardware.price_per_accelerator_hour`",
    formula=f"{_PRICE} / (input tokens + output tokens) of successful requests × 1,000,000; no observation without a "
    "price. Of serving under this load only: a server's start and idle time are not in it",
    equals="no client's",
    higher_is_better=False,
    needs_price=True,
    measured_as="total_tokens_per_s",
    based_on=("input_tokens_per_s", "output_tokens_per_s"),
)
def _cost_per_million_tokens(data: Round) -> Observations:
    return _per_million(data, float(data.successes.input_tokens.sum() + data.successes.output_tokens.sum()))


@metric(
    "cost_per_million_output_tokens",
    title="Cost per million output tokens",
    unit="the currency of `hardware.price_per_accelerator_hour`",
    formula=f"{_PRICE} / output tokens of successful requests × 1,000,000; no observation without a price",
    equals="no client's",
    higher_is_better=False,
    needs_price=True,
    measured_as="output_tokens_per_s",
    based_on=("output_tokens_per_s",),
)
def _cost_per_million_output_tokens(data: Round) -> Observations:
    return _per_million(data, float(data.successes.output_tokens.sum()))


def _per_million(data: Round, tokens: float) -> Observations:
    if data.price_per_hour is None or tokens <= 0:
        return np.empty(0)
    return np.array([data.price_per_hour * data.duration_s / 3600 / tokens * 1e6])
