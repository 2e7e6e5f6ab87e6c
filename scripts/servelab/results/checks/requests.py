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


@check(
    "failed_requests",
    looks_at="Requests that ended in an error.",
    rule="suspect if any counted request failed; invalid if more than 5 % failed, or if none was counted.",
    fails_as=("suspect", "invalid"),
    action="Read the errors in requests.parquet and the server's log; lower the load or fix the server.",
)
def _failed_requests(evidence: Evidence) -> Saw:
    total = len(evidence.counted)
    if not total:
        return invalid("no request was counted")
    errors = _errors(evidence)
    if not errors:
        return ok(f"all {total:,} requests succeeded")
    common = min(errors.items(), key=lambda item: (-item[1], item[0]))[0]
    failed = errors.total()
    text = f"{failed:,} of {total:,} requests failed, most often: {common[:120]}"
    return invalid(text) if failed > _FAILED_INVALID * total else suspect(text)


@check(
    "output_length",
    looks_at="`usage.completion_tokens` of every answer, compared with the requested length.",
    rule="suspect if the length of any answer is off; invalid if all answers together are off by more than 1 %.",
    fails_as=("suspect", "invalid"),
    action="Make the engine ignore the end-of-sequence token, and make sure that its context length has room for the "
    "answer.",
)
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


@check(
    "input_token_count",
    looks_at="`usage.prompt_tokens` of every successful request, compared with the prompt's length in the workload.",
    rule="the median excess is below 0, or above what a chat template adds (1,024 tokens) or, for completions, a "
    "begin token (8).",
    fails_as=("invalid",),
    action="Compare the served model's tokenizer with the workload's; look for truncation in the server's log.",
)
def _input_token_count(evidence: Evidence) -> Saw:
    excess = _input_excess(evidence)
    if not excess.size:
        return not_applicable("the server counted no input tokens")
    endpoint = evidence.spec.workload.parameters.get("endpoint")
    most = _BEGIN_TOKENS if endpoint == "completions" else _TEMPLATE_TOKENS
    median = float(np.median(excess))
    text = f"the server's count differs from the prompt by {median:+,.0f} tokens (median)"
    return ok(text) if 0 <= median <= most else invalid(text)


@check(
    "input_token_spread",
    looks_at="How much the excess of `input_token_count` differs between requests.",
    rule="for more than 1 % of the successful requests it differs from the median by more than 8 tokens and 2 % of "
    "the prompt.",
    fails_as=("suspect",),
    action="Look for truncation in the server's log, and make sure that its context length fits the longest prompt.",
)
def _input_token_spread(evidence: Evidence) -> Saw:
    excess = _input_excess(evidence)
    if not excess.size:
        return not_applicable("the server counted no input tokens")
    allowed = np.maximum(0.02 * _with_input(evidence)["input_tokens_asked"], 8)
    off = int((np.abs(excess - np.median(excess)) > allowed).sum())
    text = f"{off:,} of {len(excess):,} prompts are counted differently from the rest"
    return suspect(text) if off > 0.01 * len(excess) else ok(text)


@check(
    "token_count_varies",
    looks_at="The server's token counts of the same request in different rounds.",
    rule="any request has different input or output counts in two rounds.",
    fails_as=("suspect",),
    action="Look at those requests in requests.parquet; report it to the engine's developers.",
)
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


@check(
    "more_events_than_tokens",
    looks_at="Events with content, compared with `usage.completion_tokens`.",
    rule="more than 1 % of the successful requests have at least two events more than output tokens.",
    fails_as=("suspect",),
    action="Count the tokens of some answers with the model's tokenizer; report it to the engine's developers.",
)
def _more_events_than_tokens(evidence: Evidence) -> Saw:
    done = known(evidence.successes, "chunks", "output_tokens")
    if not len(done):
        return not_applicable("no answer has both events and a count")
    more = int((done["chunks"] > done["output_tokens"] + 1).sum())
    text = f"{more:,} of {len(done):,} answers have more events than tokens"
    return suspect(text) if more > _EVENTS_SUSPECT * len(done) else ok(text)


def _errors(evidence: Evidence) -> Counter[str]:
    """How often the counted requests ended in each error."""
    return Counter(error for error in evidence.counted["error"] if error is not None)


def _with_input(evidence: Evidence) -> RecordArray:
    """Without later turns, whose prompts hold the server's own answers: their length is known only roughly."""
    return arrived(known(evidence.successes, "input_tokens", "input_tokens_asked"))


def _input_excess(evidence: Evidence) -> Floats:
    done = _with_input(evidence)
    return np.asarray(done["input_tokens"] - done["input_tokens_asked"])


_SAME = 0.005
"""Tolerance between figures of the same quantity: sums in another order, and gaps in single precision."""
_SLACK_S = 0.001


@check(
    "times_in_order",
    looks_at="Send, first token, last token and end of every successful request, and the gaps between its events.",
    rule="any of them is out of order by more than 1 ms, or the gaps do not add up to last − first token within 1 ms "
    "and 0.5 %.",
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
    "zero_itl",
    looks_at="Successful requests with several output tokens whose events all came at one moment.",
    rule="suspect if more than 1 % of the answers with several tokens have last token = first token; invalid above 50 "
    "%.",
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
