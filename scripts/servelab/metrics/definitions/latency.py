"""How long a successful request and its parts took: one observation per request, token, or gap between events."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric, request_metric
from servelab.metrics.tables.io import RecordArray, present


@request_metric("ttft_ms")
def _ttft_ms(requests: RecordArray) -> Observations:
    return np.asarray(1000 * (requests["first_token_s"] - requests["sent_s"]))


@metric("first_turn_ttft_ms")
def _first_turn_ttft_ms(data: Round) -> Observations:
    return present(_ttft_ms(data.streamed[data.streamed["turn"] == 0]))


@metric("later_turns_ttft_ms")
def _later_turns_ttft_ms(data: Round) -> Observations:
    return present(_ttft_ms(data.streamed[data.streamed["turn"] > 0]))


@request_metric("tpot_ms")
def tpot_ms(requests: RecordArray) -> Observations:
    """TPOT of requests that streamed; NaN for one output token."""
    tokens = requests["output_tokens"]
    gaps = np.where(tokens > 1, tokens - 1, np.nan)
    return np.asarray(1000 * (requests["last_token_s"] - requests["first_token_s"]) / gaps)


@request_metric("e2el_ms")
def e2el_ms(requests: RecordArray) -> Observations:
    """E2EL of requests that streamed."""
    return np.asarray(1000 * (requests["last_token_s"] - requests["sent_s"]))


@request_metric("normalized_e2el_ms")
def _normalized_e2el_ms(requests: RecordArray) -> Observations:
    tokens = requests["output_tokens"]
    return e2el_ms(requests) / np.where(tokens > 0, tokens, np.nan)


@metric("itl_ms")
def _itl_ms(data: Round) -> Observations:
    gaps = [each for each in data.streamed["chunk_gaps_ms"] if each is not None]
    return np.concatenate([[], *gaps], dtype=np.float64)


@metric("itl_token_ms")
def _itl_token_ms(data: Round) -> Observations:
    several = data.streamed[data.streamed["output_tokens"] > 1]
    return np.repeat(tpot_ms(several), several["output_tokens"].astype(int) - 1)
