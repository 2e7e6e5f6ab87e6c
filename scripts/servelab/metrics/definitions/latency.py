"""How long a successful request and its parts took: one observation per request, token, or gap between events."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric, request_metric
from servelab.metrics.tables.io import RecordArray, present


@request_metric(
    "ttft_ms",
    formula="first event that carries content or reasoning − send; an event with only a role is not counted",
    equals="vLLM `ttft` (0.33 and later, which skip the event with only a role); AIPerf `time_to_first_token`",
)
def _ttft_ms(requests: RecordArray) -> Observations:
    return np.asarray(1000 * (requests["first_token_s"] - requests["sent_s"]))


@metric(
    "first_turn_ttft_ms",
    unit="milliseconds",
    formula="as TTFT, of the first turn of each conversation",
    higher_is_better=False,
    based_on=("ttft_ms",),
)
def _first_turn_ttft_ms(data: Round) -> Observations:
    return present(_ttft_ms(data.streamed[data.streamed["turn"] == 0]))


@metric(
    "later_turns_ttft_ms",
    unit="milliseconds",
    formula="as TTFT, of every turn of a conversation but its first",
    higher_is_better=False,
    based_on=("ttft_ms",),
)
def _later_turns_ttft_ms(data: Round) -> Observations:
    return present(_ttft_ms(data.streamed[data.streamed["turn"] > 0]))


@request_metric(
    "tpot_ms",
    formula="(E2EL − TTFT) / (output tokens − 1), for requests of more than one output token",
    equals="vLLM and SGLang `tpot`; AIPerf `inter_token_latency` (without `--per-chunk-usage`)",
)
def tpot_ms(requests: RecordArray) -> Observations:
    """TPOT of requests that streamed; NaN for one output token."""
    tokens = requests["output_tokens"]
    gaps = np.where(tokens > 1, tokens - 1, np.nan)
    return np.asarray(1000 * (requests["last_token_s"] - requests["first_token_s"]) / gaps)


@request_metric(
    "e2el_ms",
    formula="last event that carries content or reasoning − send",
    equals="vLLM `e2el` (0.30 and later, which leave out the usage event); AIPerf `request_latency`",
)
def e2el_ms(requests: RecordArray) -> Observations:
    """E2EL of requests that streamed."""
    return np.asarray(1000 * (requests["last_token_s"] - requests["sent_s"]))


@request_metric(
    "normalized_e2el_ms",
    formula="E2EL / output tokens, including TTFT",
    equals="the papers of Orca and of vLLM; guidellm `time_per_output_token_ms`, which is weighted by tokens",
    based_on=("e2el_ms",),
)
def _normalized_e2el_ms(requests: RecordArray) -> Observations:
    tokens = requests["output_tokens"]
    return e2el_ms(requests) / np.where(tokens > 0, tokens, np.nan)


@metric(
    "itl_ms",
    unit="milliseconds",
    formula="gaps between successive events with content, pooled over requests; an event may contain several tokens",
    equals="vLLM `itl`; AIPerf `inter_chunk_latency`",
    higher_is_better=False,
)
def _itl_ms(data: Round) -> Observations:
    gaps = [each for each in data.streamed["chunk_gaps_ms"] if each is not None]
    return np.concatenate([[], *gaps], dtype=np.float64)


@metric(
    "itl_token_ms",
    unit="milliseconds",
    formula="(last event − first event) / (output tokens − 1) of each request, once for each of these tokens; if "
    "every event has one token, the mean of the gaps between events",
    equals="guidellm `inter_token_latency_ms` (its percentiles do not interpolate)",
    higher_is_better=False,
    based_on=("tpot_ms",),
)
def _itl_token_ms(data: Round) -> Observations:
    several = data.streamed[data.streamed["output_tokens"] > 1]
    return np.repeat(tpot_ms(several), several["output_tokens"].astype(int) - 1)
