"""Tokens and requests that a round served in its duration, the times of its requests, and the load on the server."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import METRICS, Observations, Round, metric, request_metric, round_metrics
from servelab.metrics.tables.io import RecordArray, arrived, known, present


def per_second(amount: float, seconds: float) -> float:
    """An amount per second; 0 if nothing was served, whatever the time."""
    return float(amount / seconds) if amount else 0.0


def _mean_output_tokens(data: Round) -> float | None:
    lengths = present(data.successes["output_tokens"])
    return float(lengths.mean()) if lengths.size else None


def _peak_output_tokens_per_s(data: Round) -> float:
    times, tokens = data.output_token_events
    if not len(times):
        return 0.0
    count = max(1, int(data.duration_s))
    seconds = data.duration_s / count
    buckets = np.clip(((times - data.start_s) / seconds).astype(int), 0, count - 1)
    return float(np.bincount(buckets, weights=tokens).max() / seconds)


def _good_requests(data: Round) -> int:
    """Requests of a round that meet every SLO."""
    good = np.ones(len(data.streamed), dtype=bool)
    for tag, limit in data.slos.items():
        of_requests = METRICS.get(tag).of_requests
        assert of_requests is not None, f"{tag} is no metric of single requests"
        good &= ~(of_requests(data.streamed) > limit)
    return int(good.sum())


def _per_million(data: Round, tokens: float) -> float | None:
    if data.price_per_hour is None or tokens <= 0:
        return None
    return data.price_per_hour * data.duration_s / 3600 / tokens * 1e6


@request_metric("ttft_ms")
def _ttft_ms(requests: RecordArray) -> Observations:
    return np.asarray(1000 * (requests["first_token_s"] - requests["sent_s"]))


@metric("first_turn_ttft_ms")
def _first_turn_ttft_ms(data: Round) -> Observations:
    return present(_ttft_ms(data.streamed[data.streamed["turn"] == 0]))


@metric("later_turns_ttft_ms")
def _later_turns_ttft_ms(data: Round) -> Observations:
    return present(_ttft_ms(data.streamed[data.streamed["turn"] > 0]))


def streamed_tokens(requests: RecordArray) -> Observations:
    """Output tokens without those that no event carries: nobody saw when they came."""
    return np.asarray(requests["output_tokens"] - np.nan_to_num(requests["hidden_tokens"]))


@request_metric("tpot_ms")
def tpot_ms(requests: RecordArray) -> Observations:
    """TPOT of requests that streamed; NaN for one streamed token."""
    tokens = streamed_tokens(requests)
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
    several = data.streamed[streamed_tokens(data.streamed) > 1]
    return np.repeat(tpot_ms(several), streamed_tokens(several).astype(int) - 1)


def is_open_loop(requests: RecordArray) -> bool:
    """Whether arrivals were spread over time: fewer than half of the requests were scheduled for any one moment.

    In a closed loop all are due at once (with a ramp-up, all but the first few) and sent as slots become free. Later
    turns of conversations do not count: they follow an answer in either.
    """
    requests = arrived(requests)
    _, counts = np.unique(present(requests["scheduled_s"]), return_counts=True)
    return len(requests) > 1 and bool(counts.max(initial=1) < len(requests) / 2)


def _rate(data: Round, times: Observations) -> float | None:
    span = float(times.max() - times.min()) if len(times) > 1 else 0.0
    return per_second(len(times) - 1, span) if span and is_open_loop(data.requests) else None


@metric("schedule_delay_ms")
def _schedule_delay_ms(data: Round) -> Observations:
    if not is_open_loop(data.requests):
        return np.empty(0)
    started = known(data.requests, "started_s")
    return np.asarray(1000 * (started["started_s"] - started["scheduled_s"]))


round_metrics(
    {
        "duration_s": lambda data: data.duration_s,
        "requests_per_s": lambda data: per_second(len(data.successes), data.duration_s),
        "input_tokens_per_s": lambda data: per_second(data.tokens - data.output_tokens, data.duration_s),
        "output_length_tokens": _mean_output_tokens,
        "output_tokens_per_s": lambda data: per_second(data.output_tokens, data.duration_s),
        "total_tokens_per_s": lambda data: per_second(data.tokens, data.duration_s),
        "peak_output_tokens_per_s": _peak_output_tokens_per_s,
        "success_rate": lambda data: len(data.successes) / len(data.requests),
        "goodput_per_s": lambda data: per_second(_good_requests(data), data.duration_s) if data.slos else None,
        "slo_attainment": lambda data: _good_requests(data) / len(data.requests) if data.slos else None,
        "cost_per_million_tokens": lambda data: _per_million(data, data.tokens),
        "cost_per_million_output_tokens": lambda data: _per_million(data, data.output_tokens),
        "capacity_per_s": lambda data: data.capacity.get("capacity_per_s"),
        "capacity_in_flight": lambda data: data.capacity.get("capacity_in_flight"),
        "concurrency": lambda data: per_second(float(np.nansum(e2el_ms(data.streamed))) / 1000, data.duration_s),
        "peak_concurrency": lambda data: data.in_flight.counts.max(initial=0),
        "request_rate_asked_per_s": lambda data: _rate(data, data.requests["scheduled_s"]),
        "request_rate_sent_per_s": lambda data: _rate(data, present(data.requests["sent_s"])),
    }
)
