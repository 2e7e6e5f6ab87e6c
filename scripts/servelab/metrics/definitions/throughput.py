"""How much a round served in its duration: one observation per round."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import METRICS, Observations, Round, metric


def per_second(amount: float, seconds: float) -> Observations:
    """One observation; 0 if nothing was served, whatever the time."""
    return np.array([amount / seconds if amount else 0.0])


@metric(
    "duration_s",
    unit="seconds",
    formula="last end − first send, over all requests, failed ones included",
    equals="vLLM `duration`",
)
def _duration_s(data: Round) -> Observations:
    return np.array([data.duration_s])


@metric(
    "requests_per_s",
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
    unit="tokens",
    formula="output tokens of successful requests / successful requests",
)
def _output_length_tokens(data: Round) -> Observations:
    lengths = data.successes["output_tokens"]
    return np.array([np.nanmean(lengths)]) if np.isfinite(lengths).any() else np.array([])


@metric(
    "output_tokens_per_s",
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
    unit="fraction of requests",
    formula="successful requests / requests",
    equals="vLLM `completed` / (`completed` + `failed`)",
    higher_is_better=True,
)
def _success_rate(data: Round) -> Observations:
    return np.array([len(data.successes) / len(data.requests)])


@metric(
    "goodput_per_s",
    unit="requests per second",
    formula="successful requests that meet every SLO of the study / duration. A request meets an SLO if its value is "
    "at most the limit, or if it has no value (TPOT of a single token); a request that streamed nothing meets none",
    equals="vLLM `request_goodput` with `--goodput`; AIPerf `goodput` counts a request without a value as missed",
    higher_is_better=True,
    is_rate=True,
    needs_slos=True,
    based_on=("ttft_ms", "tpot_ms", "e2el_ms"),
)
def _goodput_per_s(data: Round) -> Observations:
    return per_second(_good_requests(data), data.duration_s) if data.slos else np.empty(0)


@metric(
    "slo_attainment",
    unit="fraction of requests",
    formula="successful requests that meet every SLO of the study, as goodput counts them, / requests",
    equals="the papers of DistServe and of AlpaServe",
    higher_is_better=True,
    needs_slos=True,
    based_on=("ttft_ms", "tpot_ms", "e2el_ms"),
)
def _slo_attainment(data: Round) -> Observations:
    return np.array([_good_requests(data) / len(data.requests)]) if data.slos else np.empty(0)


def _good_requests(data: Round) -> int:
    """Requests of a round that meet every SLO."""
    good = np.ones(len(data.streamed), dtype=bool)
    for tag, limit in data.slos.items():
        of_requests = METRICS.get(tag).of_requests
        assert of_requests is not None, f"{tag} is no metric of single requests"
        good &= ~(of_requests(data.streamed) > limit)
    return int(good.sum())


_PRICE = "`hardware.price_per_accelerator_hour` × accelerators of the run × duration / 3,600"


@metric(
    "cost_per_million_tokens",
    unit="the currency of `hardware.price_per_accelerator_hour`",
    formula=f"{_PRICE} / (input tokens + output tokens) of successful requests × 1,000,000; no observation without a "
    f"price. Serving under this load only: a server's start and idle time are not included",
    higher_is_better=False,
    needs_price=True,
    measured_as="total_tokens_per_s",
    based_on=("input_tokens_per_s", "output_tokens_per_s"),
)
def _cost_per_million_tokens(data: Round) -> Observations:
    return _per_million(data, data.tokens)


@metric(
    "cost_per_million_output_tokens",
    unit="the currency of `hardware.price_per_accelerator_hour`",
    formula=f"{_PRICE} / output tokens of successful requests × 1,000,000; no observation without a price",
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


_HOW = "Between the highest load that holds and the lowest that does not, on a logarithmic scale, where the limit is "


@metric(
    "capacity_per_s",
    unit="requests per second",
    formula=f"{_HOW}reached. Of `request_rate` the rate at which requests were due; of `max_concurrency` the rate at "
    "which they were served at that many in flight",
    equals="none: the definitions of peers differ",
    higher_is_better=True,
    is_rate=True,
)
def _capacity_per_s(data: Round) -> Observations:
    return _found(data, "capacity_per_s")


@metric(
    "capacity_in_flight",
    unit="requests in flight",
    formula=f"{_HOW}reached, in requests in flight; only of `max_concurrency`",
    equals="none: the definitions of peers differ",
    higher_is_better=True,
)
def _capacity_in_flight(data: Round) -> Observations:
    return _found(data, "capacity_in_flight")


def _found(data: Round, tag: str) -> Observations:
    return np.array([data.capacity[tag]] if tag in data.capacity else [])
