"""Do the figures agree with one another and with the records?"""

from __future__ import annotations

import numpy as np

from servelab.metrics.tables.record_array import by_round, known
from servelab.results.checks import Evidence, Saw, check, invalid, not_applicable, ok, suspect

_SAME = 0.005
"""Tolerance between figures of the same quantity: sums in another order, and gaps in single precision."""
_SLACK_S = 0.001


@check(
    "total_is_tokens_per_duration",
    looks_at="Total token throughput of each round, compared with its tokens and its duration.",
    rule="total_tokens_per_s × duration_s and the tokens of the successful requests differ by more than 0.5 % in any "
    "round.",
    why="This is the definition. A figure that breaks it was not computed from these records.",
    fails_as=("invalid",),
    action="Report it: the metric and the records disagree.",
)
def _total_is_tokens_per_duration(evidence: Evidence) -> Saw:
    rates, durations = (evidence.rounds.get(name, {}) for name in ("total_tokens_per_s", "duration_s"))
    tokens = {
        number: float(np.nansum(done["input_tokens"]) + np.nansum(done["output_tokens"]))
        for number, done in by_round(evidence.successes).items()
    }
    compared = [number for number in tokens if number in rates and number in durations and tokens[number]]
    if not compared or evidence.mean("total_tokens_per_s") is None or evidence.mean("duration_s") is None:
        return not_applicable("no figure by our definition")
    worst = max(abs(rates[number] * durations[number] / tokens[number] - 1) for number in compared)
    text = f"rate × duration is within {100 * worst:.2g} % of the tokens in every round"
    return ok(text) if worst <= _SAME else invalid(f"rate × duration is {100 * worst:.2g} % off the tokens in a round")


@check(
    "tpot_is_decode_time_per_token",
    looks_at="Mean TPOT, compared with (E2EL − TTFT) / (output tokens − 1) from the records, each a mean over rounds.",
    rule="the two differ by more than 0.5 %.",
    why="This is the definition. It breaks if a reader misses part of the stream, or if a tool includes TTFT in TPOT.",
    fails_as=("invalid",),
    action="Report it: the metric and the records disagree.",
)
def _tpot_is_decode_time_per_token(evidence: Evidence) -> Saw:
    reported = evidence.mean("tpot_ms")
    done = known(evidence.successes, "first_token_s", "last_token_s")
    done = done[done["output_tokens"] > 1]
    if reported is None or not len(done):
        return not_applicable("no answer with several tokens, or another definition of TPOT")
    times = [
        1000 * (requests["last_token_s"] - requests["first_token_s"]) / (requests["output_tokens"] - 1)
        for requests in by_round(done).values()
    ]
    mean = float(np.mean([each.mean() for each in times]))
    text = f"TPOT is {reported:.4g} ms, the records give {mean:.4g} ms"
    return ok(text) if abs(reported - mean) <= _SAME * abs(mean) + 1e-6 else invalid(text)


@check(
    "times_in_order",
    looks_at="Send, first token, last token and end of every successful request, and the gaps between its events.",
    rule="any of them is out of order by more than 1 ms, or the gaps do not add up to last − first token within 1 ms "
    "and 0.5 %.",
    why="Times of one clock cannot run backwards: the client's times are wrong, and so is every latency.",
    fails_as=("invalid",),
    action="Look at those requests in requests.parquet; report it to the load client.",
)
def _times_in_order(evidence: Evidence) -> Saw:
    moments = ("sent_s", "first_token_s", "last_token_s", "end_s")
    done = known(evidence.successes, *moments)
    if not len(done):
        return not_applicable("no successful request has times")
    times = np.stack([done[name] for name in moments], axis=1)
    wrong = (np.diff(times, axis=1) < -_SLACK_S).any(axis=1)
    gaps = np.array([np.nan if g is None or not len(g) else np.sum(g, dtype=float) for g in done["chunk_gaps_ms"]])
    span = 1000 * (times[:, 2] - times[:, 1])
    wrong |= np.abs(gaps - span) > np.maximum(1000 * _SLACK_S, _SAME * span)  # false where there are no gaps
    text = f"{int(wrong.sum()):,} of {len(done):,} successful requests have times out of order"
    return invalid(text) if wrong.any() else ok(text)


@check(
    "peak_below_mean",
    looks_at="Peak output token throughput of each round, compared with its mean.",
    rule="the peak is below the mean by more than 0.5 % in any round.",
    why="The buckets are equally long and without gaps, so the fullest one has at least the mean. A lower peak means "
    "that the two count different things, for example a chunk of several tokens as one.",
    fails_as=("suspect",),
    action="Compare events with tokens in requests.parquet; do not rely on the peak.",
)
def _peak_below_mean(evidence: Evidence) -> Saw:
    peaks, means = (evidence.rounds.get(f"{name}output_tokens_per_s", {}) for name in ("peak_", ""))
    both = [number for number in peaks if number in means]
    if not both or evidence.mean("peak_output_tokens_per_s") is None or evidence.mean("output_tokens_per_s") is None:
        return not_applicable("no peak by our definition")
    below = [n for n in both if peaks[n] < (1 - _SAME) * means[n]]
    if below:
        number = below[0]
        return suspect(f"round {number}: peak {peaks[number]:.4g} tokens/s, mean {means[number]:.4g} tokens/s")
    return ok("no round's peak is below its mean")


@check(
    "zero_itl",
    looks_at="Successful requests with several output tokens whose events all came at one moment.",
    rule="suspect if more than 1 % of the answers with several tokens have last token = first token; invalid above 50 "
    "%.",
    why="Their TPOT and ITL are 0 and their TTFT equals E2EL: nothing was streamed, or the client read only the end "
    "of the stream. A few are possible if a short answer fits into one speculative step.",
    fails_as=("suspect", "invalid"),
    action="Make sure that the server streams, that no proxy buffers the stream, and that reasoning is read as "
    "content.",
)
def _zero_itl(evidence: Evidence) -> Saw:
    done = evidence.successes
    several = done[done["output_tokens"] > 1]
    if not len(several):
        return not_applicable("no answer has several tokens")
    none = int((~(several["last_token_s"] > several["first_token_s"])).sum())
    text = f"{none:,} of {len(several):,} answers with several tokens have no gap between them"
    if none > 0.5 * len(several):
        return invalid(text)
    return suspect(text) if none > 0.01 * len(several) else ok(text)
