"""How long a successful request took, and its parts: one observation a request, or a token, or a gap between events."""

from __future__ import annotations

import numpy as np
import pandas as pd

from servelab.metrics import Observations, Round, metric, request_metric


@request_metric(
    "ttft_ms",
    title="Time to first token (TTFT)",
    formula="first event that carries content or reasoning − send; an event with only a role does not count",
    equals="vLLM `ttft` (0.33 and later, which skip the event with only a role); AIPerf `time_to_first_token`",
)
def _ttft_ms(requests: pd.DataFrame) -> pd.Series[float]:
    return 1000 * (requests.first_token_s - requests.sent_s)


@request_metric(
    "tpot_ms",
    title="Time per output token after the first (TPOT)",
    formula="(E2EL − TTFT) / (output tokens − 1), for requests of more than one output token",
    equals="vLLM and SGLang `tpot`; AIPerf `inter_token_latency` (without `--per-chunk-usage`)",
)
def tpot_ms(requests: pd.DataFrame) -> pd.Series[float]:
    """TPOT of requests that streamed; NaN for one output token."""
    gaps = (requests.output_tokens - 1).where(requests.output_tokens > 1)
    return 1000 * (requests.last_token_s - requests.first_token_s) / gaps


@request_metric(
    "e2el_ms",
    title="End-to-end latency (E2EL)",
    formula="last event that carries content or reasoning − send",
    equals="vLLM `e2el` (0.30 and later, which leave out the usage event); AIPerf `request_latency`",
)
def e2el_ms(requests: pd.DataFrame) -> pd.Series[float]:
    """E2EL of requests that streamed."""
    return 1000 * (requests.last_token_s - requests.sent_s)


@request_metric(
    "normalized_e2el_ms",
    title="Normalized latency",
    formula="E2EL / output tokens, TTFT included",
    equals="the papers of Orca and of vLLM; guidellm `time_per_output_token_ms`, but not weighted by tokens",
    based_on=("e2el_ms",),
)
def _normalized_e2el_ms(requests: pd.DataFrame) -> pd.Series[float]:
    return e2el_ms(requests) / requests.output_tokens.where(requests.output_tokens > 0)


@metric(
    "itl_ms",
    title="Inter-token latency (ITL), per event",
    unit="milliseconds",
    formula="gaps between successive events with content, pooled over requests; an event may hold several tokens",
    equals="vLLM `itl`; AIPerf `inter_chunk_latency`",
    higher_is_better=False,
)
def _itl_ms(data: Round) -> Observations:
    return np.concatenate([np.empty(0, np.float64), *data.streamed.chunk_gaps_ms.dropna()], dtype=np.float64)


@metric(
    "itl_token_ms",
    title="Inter-token latency (ITL), per token",
    unit="milliseconds",
    formula="(last event − first event) / (output tokens − 1) of each request, once for each of these tokens; where "
    "every event holds one token, the mean of the gaps between events",
    equals="guidellm `inter_token_latency_ms` (its percentiles do not interpolate)",
    higher_is_better=False,
    based_on=("tpot_ms",),
)
def _itl_token_ms(data: Round) -> Observations:
    several = data.streamed[data.streamed.output_tokens > 1]
    return np.repeat(tpot_ms(several).to_numpy(np.float64), several.output_tokens.to_numpy(int) - 1)
