"""Did the requests and their answers have the requested form?"""

from __future__ import annotations

from collections import Counter

import numpy as np

from servelab.metrics.tables.io import Floats, RecordArray, arrived, by_round, known
from servelab.results.checks import Evidence, Saw, check, invalid, not_applicable, ok, suspect

_FAILED_INVALID = 0.05
_LENGTH_INVALID = 0.01
_TEMPLATE_TOKENS = 1024
_BEGIN_TOKENS = 8
_EVENTS_SUSPECT = 0.01


@check("failed_requests")
def _failed_requests(evidence: Evidence) -> Saw:
    total = len(evidence.counted)
    if not total:
        return invalid("no request was counted")
    errors = Counter(error for error in evidence.counted["error"] if error is not None)
    if not errors:
        return ok(f"all {total:,} requests succeeded")
    common = min(errors.items(), key=lambda item: (-item[1], item[0]))[0]
    failed = errors.total()
    text = f"{failed:,} of {total:,} requests failed, most often: {common[:120]}"
    return invalid(text) if failed > _FAILED_INVALID * total else suspect(text)


@check("output_length")
def _output_length(evidence: Evidence) -> Saw:
    answers = known(evidence.counted, "output_tokens", "output_tokens_asked")
    if not len(answers):
        return not_applicable("no answer has both a requested and a counted length")
    if evidence.spec.natural_stops:
        at_limit = int((answers["output_tokens"] >= answers["output_tokens_asked"]).sum())
        return ok(f"answers end by themselves; {at_limit:,} of {len(answers):,} have the longest length allowed")
    off = int((answers["output_tokens"] != answers["output_tokens_asked"]).sum())
    got, asked = answers["output_tokens"].sum(), answers["output_tokens_asked"].sum()
    if not off:
        return ok(f"all {len(answers):,} answers have the requested length")
    text = f"{off:,} of {len(answers):,} answers have another length; {got:,.0f} tokens instead of {asked:,.0f}"
    return invalid(text) if abs(got - asked) > _LENGTH_INVALID * asked else suspect(text)


@check("input_token_count")
def _input_token_count(evidence: Evidence) -> Saw:
    excess = _input_excess(evidence)
    if not excess.size:
        return not_applicable("the server counted no input tokens")
    endpoint = evidence.spec.workload.parameters.get("endpoint")
    most = _BEGIN_TOKENS if endpoint == "completions" else _TEMPLATE_TOKENS
    median = float(np.median(excess))
    text = f"the server's count differs from the prompt by {median:+,.0f} tokens (median)"
    return ok(text) if 0 <= median <= most else invalid(text)


@check("input_token_spread")
def _input_token_spread(evidence: Evidence) -> Saw:
    excess = _input_excess(evidence)
    if not excess.size:
        return not_applicable("the server counted no input tokens")
    allowed = np.maximum(0.02 * _with_input(evidence)["input_tokens_asked"], 8)
    off = int((np.abs(excess - np.median(excess)) > allowed).sum())
    text = f"{off:,} of {len(excess):,} prompts are counted differently from the rest"
    return suspect(text) if off > 0.01 * len(excess) else ok(text)


@check("token_count_varies")
def _token_count_varies(evidence: Evidence) -> Saw:
    done = arrived(evidence.successes)
    if len(by_round(done)) < 2:
        return not_applicable("a single round")
    indices, request = np.unique(done["request_index"], return_inverse=True)
    varies = np.zeros(len(indices), dtype=bool)
    for column in ("input_tokens", "output_tokens"):
        low, high = np.full(len(indices), np.inf), np.full(len(indices), -np.inf)
        np.fmin.at(low, request, done[column])
        np.fmax.at(high, request, done[column])
        varies |= low < high
    varied = int(varies.sum())
    text = f"{varied:,} of {len(indices):,} requests have token counts that differ between rounds"
    return suspect(text) if varied else ok(text)


@check("more_events_than_tokens")
def _more_events_than_tokens(evidence: Evidence) -> Saw:
    done = known(evidence.successes, "chunks", "output_tokens")
    if not len(done):
        return not_applicable("no answer has both events and a count")
    more = int((done["chunks"] > done["output_tokens"] + 1).sum())
    text = f"{more:,} of {len(done):,} answers have more events than tokens"
    return suspect(text) if more > _EVENTS_SUSPECT * len(done) else ok(text)


def _with_input(evidence: Evidence) -> RecordArray:
    """Without later turns, whose prompts hold the server's own answers: their length is known only roughly."""
    return arrived(known(evidence.successes, "input_tokens", "input_tokens_asked"))


def _input_excess(evidence: Evidence) -> Floats:
    done = _with_input(evidence)
    return np.asarray(done["input_tokens"] - done["input_tokens_asked"])


_SAME = 0.005
"""Tolerance between figures of the same quantity: sums in another order, and gaps in single precision."""
_SLACK_S = 0.001
_TOGETHER = 1.5
_FEW_EVENTS = 20
"""The first event's tokens have no gap of their own: of fewer events, TPOT is 5 % too low or more."""


@check("times_in_order")
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


@check("zero_itl")
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


@check("unseen_tokens")
def _unseen_tokens(evidence: Evidence) -> Saw:
    done = known(evidence.successes, "chunks", "output_tokens")
    done = done[done["output_tokens"] > 1]
    if not len(done):
        return not_applicable("no answer with several tokens has both events and a count")
    if counted := sum(stats.tokens_counted for stats in evidence.client):
        return suspect(f"the server sent no usage for {counted:,} requests: their tokens were counted in their texts")
    hidden, tokens = np.nan_to_num(done["hidden_tokens"]).sum(), done["output_tokens"].sum()
    if hidden:
        share = 100 * hidden / tokens
        return suspect(f"{share:.0f} % of the output tokens were reasoning that was not streamed: TTFT has its time")
    several = np.maximum(done["chunks"], 1)
    together = (done["output_tokens"] > _TOGETHER * several) & (several < _FEW_EVENTS)
    text = f"{int(together.sum()):,} of {len(done):,} answers came as fewer than {_FEW_EVENTS} events of several tokens"
    text += f", {sum(stats.without_done for stats in evidence.client):,} without [DONE]"
    return suspect(text) if together.sum() > 0.01 * len(done) else ok(text)
