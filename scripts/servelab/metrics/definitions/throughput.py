"""How much a round served in its duration: one observation per round."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import Observations, Round, metric


def per_second(amount: float, seconds: float) -> Observations:
    """One observation; 0 if nothing was served, whatever the time."""
    return np.array([amount / seconds if amount else 0.0])


@metric(
    "duration_s",
    title="Duration of a round",
    unit="seconds",
    formula="last end − first send, over all requests, failed ones included",
    equals="vLLM `duration`",
    higher_is_better=None,
)
def _duration_s(data: Round) -> Observations:
    return np.array([data.duration_s])


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
    return per_second(len(data.successes), data.duration_s)


@metric(
    "input_tokens_per_s",
    title="Input token throughput",
    unit="tokens per second",
    formula="input tokens of successful requests / duration",
    equals="SGLang `input_throughput`; AIPerf `input_token_throughput`",
    higher_is_better=True,
    is_rate=True,
)
def _input_tokens_per_s(data: Round) -> Observations:
    return per_second(np.nansum(data.successes["input_tokens"]), data.duration_s)


@metric(
    "output_length_tokens",
    title="Output tokens of a request",
    unit="tokens",
    formula="output tokens of successful requests / successful requests",
    equals="none",
    higher_is_better=None,
)
def _output_length_tokens(data: Round) -> Observations:
    lengths = data.successes["output_tokens"]
    return np.array([np.nanmean(lengths)]) if np.isfinite(lengths).any() else np.array([])


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
    return per_second(data.output_tokens, data.duration_s)


@metric(
    "total_tokens_per_s",
    title="Total token throughput",
    unit="tokens per second",
    formula="(input tokens + output tokens) of successful requests / duration",
    equals="vLLM `total_token_throughput` (0.20.2 and later, which count the server's input tokens)",
    higher_is_better=True,
    is_rate=True,
    based_on=("input_tokens_per_s", "output_tokens_per_s"),
)
def _total_tokens_per_s(data: Round) -> Observations:
    return per_second(data.tokens, data.duration_s)


@metric(
    "peak_output_tokens_per_s",
    title="Peak output token throughput",
    unit="tokens per second",
    formula="the most output tokens that arrived in one bucket / the bucket's length. The duration is divided into "
    "equally long buckets, one per whole second of it and at least one, so the peak is never below the mean. An event "
    "counts for the request's output tokens / events",
    equals="none: vLLM `max_output_tokens_per_s` counts events, not tokens, in buckets of one second, and the last "
    "bucket is cut off, so it can be below vLLM's mean",
    higher_is_better=True,
    is_rate=True,
    based_on=("output_tokens_per_s", "itl_ms"),
)
def _peak_output_tokens_per_s(data: Round) -> Observations:
    times, tokens = data.output_token_events
    if not len(times):
        return np.array([0.0])
    count = max(1, int(data.duration_s))
    seconds = data.duration_s / count
    buckets = np.clip(((times - data.start_s) / seconds).astype(int), 0, count - 1)
    return np.array([np.bincount(buckets, weights=tokens).max() / seconds])


@metric(
    "success_rate",
    title="Success rate",
    unit="fraction of requests",
    formula="successful requests / requests",
    equals="vLLM `completed` / (`completed` + `failed`)",
    higher_is_better=True,
)
def _success_rate(data: Round) -> Observations:
    return np.array([len(data.successes) / len(data.requests)])
