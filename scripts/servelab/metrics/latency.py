"""How long a successful request took, and its parts: one observation a request, or a gap between events."""

from __future__ import annotations

import numpy as np
import pandas as pd

from servelab.metrics import Observations, Round, metric


def _successes(requests: pd.DataFrame) -> pd.DataFrame:
    """Successful requests that streamed something: without an event with content there is nothing to time."""
    return requests[requests.error.isna() & requests.first_token_s.notna()]


def _values(column: pd.Series[float]) -> Observations:
    return np.asarray(column, dtype=np.float64)


@metric(
    "ttft_ms",
    title="Time to first token (TTFT)",
    unit="milliseconds",
    formula="first event that carries content or reasoning − send; an event with only a role does not count",
    equals="vLLM `ttft` (0.33 and later, which skip the event with only a role)",
    higher_is_better=False,
)
def _ttft_ms(data: Round) -> Observations:
    done = _successes(data.requests)
    return _values(1000 * (done.first_token_s - done.sent_s))


@metric(
    "tpot_ms",
    title="Time per output token after the first (TPOT)",
    unit="milliseconds",
    formula="(E2EL − TTFT) / (output tokens − 1), for requests of more than one output token",
    equals="vLLM `tpot`; guidellm `inter_token_latency_ms`, but not weighted by tokens",
    higher_is_better=False,
)
def _tpot_ms(data: Round) -> Observations:
    done = _successes(data.requests)
    done = done[done.output_tokens > 1]
    return _values(1000 * (done.last_token_s - done.first_token_s) / (done.output_tokens - 1))


@metric(
    "itl_ms",
    title="Inter-token latency (ITL)",
    unit="milliseconds",
    formula="gaps between successive events with content, pooled over requests; an event may hold several tokens",
    equals="vLLM `itl`",
    higher_is_better=False,
)
def _itl_ms(data: Round) -> Observations:
    gaps = _successes(data.requests).chunk_gaps_ms
    return np.concatenate([np.empty(0, np.float64), *gaps], dtype=np.float64)


@metric(
    "e2el_ms",
    title="End-to-end latency (E2EL)",
    unit="milliseconds",
    formula="last event that carries content or reasoning − send",
    equals="vLLM `e2el` (0.30 and later, which leave out the usage event)",
    higher_is_better=False,
)
def _e2el_ms(data: Round) -> Observations:
    done = _successes(data.requests)
    return _values(1000 * (done.last_token_s - done.sent_s))
