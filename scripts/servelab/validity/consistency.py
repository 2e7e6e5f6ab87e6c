"""Do the figures agree with one another and with the records?"""

from __future__ import annotations

import numpy as np

from servelab.validity import Evidence, Saw, check, invalid, not_applicable, ok, suspect

_SAME = 0.005
"""Figures of the same thing: what is left for sums in another order and for gaps of single precision."""
_SLACK_S = 0.001


@check(
    "total_is_tokens_per_duration",
    looks_at="Total token throughput of each round beside its tokens and its duration.",
    rule="total_tokens_per_s × duration_s and the tokens of the successes differ by more than 0.5 % in any round.",
    why="It is the definition. A figure that breaks it was computed from something else than the records.",
    fails_as=("invalid",),
    action="Report it: the metric and the records disagree.",
)
def _total_is_tokens_per_duration(evidence: Evidence) -> Saw:
    rates, durations = (evidence.rounds.get(name, {}) for name in ("total_tokens_per_s", "duration_s"))
    tokens = evidence.successes.groupby("round")[["input_tokens", "output_tokens"]].sum().sum(axis=1)
    known = [number for number in tokens.index if number in rates and number in durations and tokens[number]]
    if not known or evidence.mean("total_tokens_per_s") is None or evidence.mean("duration_s") is None:
        return not_applicable("no figure of our definition")
    worst = max(abs(rates[number] * durations[number] / tokens[number] - 1) for number in known)
    text = f"rate × duration is within {100 * worst:.2g} % of the tokens in every round"
    return ok(text) if worst <= _SAME else invalid(f"rate × duration is {100 * worst:.2g} % off the tokens in a round")


@check(
    "tpot_is_decode_time_per_token",
    looks_at="Mean TPOT beside (E2EL − TTFT) / (output tokens − 1) of the records.",
    rule="the two differ by more than 0.5 %.",
    why="It is the definition. A reader that misses part of the stream, or a tool that puts TTFT into TPOT, breaks it.",
    fails_as=("invalid",),
    action="Report it: the metric and the records disagree.",
)
def _tpot_is_decode_time_per_token(evidence: Evidence) -> Saw:
    told = evidence.mean("tpot_ms")
    done = evidence.successes.dropna(subset=["first_token_s", "last_token_s"])
    done = done[done["output_tokens"] > 1]
    if told is None or done.empty:
        return not_applicable("no answer of several tokens, or a TPOT of another definition")
    times = 1000 * (done["last_token_s"] - done["first_token_s"]) / (done["output_tokens"] - 1)
    mean = float(times.mean())
    text = f"TPOT is {told:.4g} ms, the records give {mean:.4g} ms"
    return ok(text) if abs(told - mean) <= _SAME * abs(mean) + 1e-6 else invalid(text)


@check(
    "times_in_order",
    looks_at="Send, first token, last token and end of every success, and the gaps between its events.",
    rule="any is out of order by more than 1 ms, or its gaps do not add up to last − first token within 1 ms and 0.5 "
    "%.",
    why="Times of one clock cannot run backwards: the client's stamps are wrong, and every latency with them.",
    fails_as=("invalid",),
    action="Look at those requests in requests.parquet; report it to the load client.",
)
def _times_in_order(evidence: Evidence) -> Saw:
    done = evidence.successes.dropna(subset=["sent_s", "first_token_s", "last_token_s", "end_s"])
    if done.empty:
        return not_applicable("no success has times")
    times = done[["sent_s", "first_token_s", "last_token_s", "end_s"]].to_numpy()
    wrong = (np.diff(times, axis=1) < -_SLACK_S).any(axis=1)
    gaps = np.array([np.nan if g is None or not len(g) else np.sum(g, dtype=float) for g in done["chunk_gaps_ms"]])
    span = 1000 * (times[:, 2] - times[:, 1])
    wrong |= np.abs(gaps - span) > np.maximum(1000 * _SLACK_S, _SAME * span)  # false where there are no gaps
    text = f"{int(wrong.sum()):,} of {len(done):,} successes have times out of order"
    return invalid(text) if wrong.any() else ok(text)


@check(
    "peak_below_mean",
    looks_at="Peak beside mean output token throughput of each round.",
    rule="the peak is below the mean by more than 0.5 % in any round.",
    why="Its buckets have no gaps and are equally long, so that the fullest holds at least the mean. Less means that "
    "the two count different things, as where a chunk of several tokens counts as one.",
    fails_as=("suspect",),
    action="Compare events with tokens in requests.parquet; take the peak for what it counts.",
)
def _peak_below_mean(evidence: Evidence) -> Saw:
    peaks, means = (evidence.rounds.get(f"{name}output_tokens_per_s", {}) for name in ("peak_", ""))
    known = [number for number in peaks if number in means]
    if not known or evidence.mean("peak_output_tokens_per_s") is None or evidence.mean("output_tokens_per_s") is None:
        return not_applicable("no peak of our definition")
    below = [n for n in known if peaks[n] < (1 - _SAME) * means[n]]
    if below:
        number = below[0]
        return suspect(f"round {number}: peak {peaks[number]:.4g} tokens/s, mean {means[number]:.4g} tokens/s")
    return ok("no round's peak is below its mean")


@check(
    "zero_itl",
    looks_at="Successes of several output tokens whose events came at one moment.",
    rule="suspect where more than 1 % of the answers of several tokens have last token = first token; invalid above 50 "
    "%.",
    why="Their TPOT and ITL are 0 and their TTFT is E2EL: nothing was streamed, or the client read only the end of the "
    "stream. A few are possible where a short answer fits one speculative step.",
    fails_as=("suspect", "invalid"),
    action="See that the server streams, that nothing between buffers, and that reasoning is read as content.",
)
def _zero_itl(evidence: Evidence) -> Saw:
    done = evidence.successes
    several = done[done["output_tokens"] > 1]
    if several.empty:
        return not_applicable("no answer has several tokens")
    none = int((~(several["last_token_s"] > several["first_token_s"])).sum())
    text = f"{none:,} of {len(several):,} answers of several tokens have no gap between them"
    if none > 0.5 * len(several):
        return invalid(text)
    return suspect(text) if none > 0.01 * len(several) else ok(text)
