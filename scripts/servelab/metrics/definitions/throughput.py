"""How much a round served in its duration: one observation per round."""

from __future__ import annotations

import numpy as np

from servelab.metrics.definitions import METRICS, Observations, Round, metric


def per_second(amount: float, seconds: float) -> Observations:
    """One observation; 0 if nothing was served, whatever the time."""
    return np.array([amount / seconds if amount else 0.0])


@metric("duration_s")
def _duration_s(data: Round) -> Observations:
    return np.array([data.duration_s])


@metric("requests_per_s")
def _requests_per_s(data: Round) -> Observations:
    return per_second(len(data.successes), data.duration_s)


@metric("input_tokens_per_s")
def _input_tokens_per_s(data: Round) -> Observations:
    return per_second(np.nansum(data.successes["input_tokens"]), data.duration_s)


@metric("output_length_tokens")
def _output_length_tokens(data: Round) -> Observations:
    lengths = data.successes["output_tokens"]
    return np.array([np.nanmean(lengths)]) if np.isfinite(lengths).any() else np.array([])


@metric("output_tokens_per_s")
def _output_tokens_per_s(data: Round) -> Observations:
    return per_second(data.output_tokens, data.duration_s)


@metric("total_tokens_per_s")
def _total_tokens_per_s(data: Round) -> Observations:
    return per_second(data.tokens, data.duration_s)


@metric("peak_output_tokens_per_s")
def _peak_output_tokens_per_s(data: Round) -> Observations:
    times, tokens = data.output_token_events
    if not len(times):
        return np.array([0.0])
    count = max(1, int(data.duration_s))
    seconds = data.duration_s / count
    buckets = np.clip(((times - data.start_s) / seconds).astype(int), 0, count - 1)
    return np.array([np.bincount(buckets, weights=tokens).max() / seconds])


@metric("success_rate")
def _success_rate(data: Round) -> Observations:
    return np.array([len(data.successes) / len(data.requests)])


@metric("goodput_per_s")
def _goodput_per_s(data: Round) -> Observations:
    return per_second(_good_requests(data), data.duration_s) if data.slos else np.empty(0)


@metric("slo_attainment")
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


@metric("cost_per_million_tokens")
def _cost_per_million_tokens(data: Round) -> Observations:
    return _per_million(data, data.tokens)


@metric("cost_per_million_output_tokens")
def _cost_per_million_output_tokens(data: Round) -> Observations:
    return _per_million(data, data.output_tokens)


def _per_million(data: Round, tokens: float) -> Observations:
    if data.price_per_hour is None or tokens <= 0:
        return np.empty(0)
    return np.array([data.price_per_hour * data.duration_s / 3600 / tokens * 1e6])


@metric("capacity_per_s")
def _capacity_per_s(data: Round) -> Observations:
    return _found(data, "capacity_per_s")


@metric("capacity_in_flight")
def _capacity_in_flight(data: Round) -> Observations:
    return _found(data, "capacity_in_flight")


def _found(data: Round, tag: str) -> Observations:
    return np.array([data.capacity[tag]] if tag in data.capacity else [])
