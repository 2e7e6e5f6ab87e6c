"""Did the requests and their answers have the requested form?"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from servelab.metrics.tables.record_array import Floats, RecordArray, arrived, by_round, known
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
    why="Figures come from the successful requests, which are faster when others fail. Above 5 % not even the 95th "
    "percentile of all requests is known.",
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
    "timed_out_requests",
    looks_at="Requests that a time limit ended.",
    rule="any counted request's error is a time-out.",
    why="The slowest requests are cut off, so the latencies of the others look better than they should.",
    fails_as=("suspect",),
    action="Raise `round_timeout_s`, or lower the load.",
)
def _timed_out_requests(evidence: Evidence) -> Saw:
    count = sum(n for text, n in _errors(evidence).items() if re.search("timeout|timed out", text, re.IGNORECASE))
    return suspect(f"{count:,} requests ran into a time limit") if count else ok("no request ran into a time limit")


@check(
    "output_length",
    looks_at="`usage.completion_tokens` of every answer, compared with the requested length.",
    rule="suspect if the length of any answer is off; invalid if all answers together are off by more than 1 %.",
    why="Another number of tokens is a different amount of work: throughput and latency are not those of the "
    "workload, and not comparable with an engine that kept to it.",
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
    why="Total throughput counts these tokens. A template adds the same to each prompt (SmolLM2's 30; templates with "
    "a long default system prompt some hundred); anything else means a truncated prompt, a wrong tokenizer or a wrong "
    "count.",
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
    why="A template adds the same number to each prompt, except for a few tokens where it meets the text. Some "
    "prompts are truncated, or counted differently.",
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
    why="Every round sends the same bytes, so a count that changes is wrong at least once. Later turns of "
    "conversations are left out: they hold the server's answers.",
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
    why="An event carries at least one token (except possibly the rest of the text at the end): the server counts too "
    "few tokens, and the throughput is too low.",
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
