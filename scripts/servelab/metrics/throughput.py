"""How much a round served in its duration: one observation a round."""

from __future__ import annotations

import numpy as np
import pandas as pd

from servelab.metrics import Observations, Round, metric


def duration_s(requests: pd.DataFrame) -> float:
    """Seconds from the first request sent until every request has ended, failed ones included.

    Where none could be sent, from the first that was scheduled.
    """
    start = requests.sent_s.min()
    return float(requests.end_s.max() - (requests.scheduled_s.min() if np.isnan(start) else start))


def _successes(requests: pd.DataFrame) -> pd.DataFrame:
    return requests[requests.error.isna()]


def _output_tokens(successes: pd.DataFrame) -> float:
    return float(successes.output_tokens.sum())


def _input_tokens(successes: pd.DataFrame) -> float:
    return float(successes.input_tokens.sum())


def _per_second(amount: float, requests: pd.DataFrame) -> Observations:
    return np.array([amount / duration_s(requests) if amount else 0.0])


@metric(
    "duration_s",
    title="Duration of a round",
    unit="seconds",
    formula="last end − first send, over all requests, failed ones included",
    equals="vLLM `duration`",
    higher_is_better=False,
)
def _duration(data: Round) -> Observations:
    return np.array([duration_s(data.requests)])


@metric(
    "requests_per_s",
    title="Request throughput",
    unit="requests per second",
    formula="successful requests / duration",
    equals="vLLM `request_throughput`",
    higher_is_better=True,
    is_rate=True,
)
def _requests_per_s(data: Round) -> Observations:
    return _per_second(len(_successes(data.requests)), data.requests)


@metric(
    "output_tokens_per_s",
    title="Output token throughput",
    unit="tokens per second",
    formula="output tokens of successful requests / duration",
    equals="vLLM `output_throughput`",
    higher_is_better=True,
    is_rate=True,
)
def _output_tokens_per_s(data: Round) -> Observations:
    return _per_second(_output_tokens(_successes(data.requests)), data.requests)


@metric(
    "total_tokens_per_s",
    title="Total token throughput",
    unit="tokens per second",
    formula="(input tokens + output tokens) of successful requests / duration",
    equals="vLLM `total_token_throughput` (0.20.2 and later, which count the server's input tokens)",
    higher_is_better=True,
    is_rate=True,
)
def _total_tokens_per_s(data: Round) -> Observations:
    successes = _successes(data.requests)
    return _per_second(_input_tokens(successes) + _output_tokens(successes), data.requests)


@metric(
    "success_rate",
    title="Success rate",
    unit="fraction of requests",
    formula="successful requests / requests",
    equals="vLLM `completed` / (`completed` + `failed`)",
    higher_is_better=True,
)
def _success_rate(data: Round) -> Observations:
    return np.array([len(_successes(data.requests)) / len(data.requests)])
