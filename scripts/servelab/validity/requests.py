"""Did the requests do what was asked of them?"""

from __future__ import annotations

import pandas as pd

from servelab.validity import Evidence, Saw, check, invalid, not_applicable, ok, suspect

_FAILED_INVALID = 0.05
_LENGTH_INVALID = 0.01
_TEMPLATE_TOKENS = 1024
_BEGIN_TOKENS = 8
_EVENTS_SUSPECT = 0.01


@check(
    "failed_requests",
    looks_at="Requests that ended in an error.",
    rule="suspect where any counted request failed; invalid above 5 % of them, or where none was counted.",
    why="Figures are of the successes, and failed requests make room for them. Above 5 % not even the 95th percentile "
    "of what was asked is known.",
    fails_as=("suspect", "invalid"),
    action="Read the errors in requests.parquet and the server's log; lower the load or mend the server.",
)
def _failed_requests(evidence: Evidence) -> Saw:
    total = len(evidence.counted)
    if not total:
        return invalid("no request was counted")
    errors = evidence.counted["error"].dropna()
    if errors.empty:
        return ok(f"all {total:,} requests succeeded")
    common = errors.mode().iloc[0]
    text = f"{len(errors):,} of {total:,} requests failed, most often: {common[:120]}"
    return invalid(text) if len(errors) > _FAILED_INVALID * total else suspect(text)


@check(
    "timed_out_requests",
    looks_at="Requests that were ended by a time limit.",
    rule="any counted request's error is a time-out.",
    why="The slowest requests are cut off, so that the latencies of those that are left look better than they were.",
    fails_as=("suspect",),
    action="Raise `round_timeout_s`, or lower the load.",
)
def _timed_out_requests(evidence: Evidence) -> Saw:
    errors = evidence.counted["error"].dropna().astype(str)
    count = int(errors.str.contains("timeout|timed out", case=False).sum())
    return suspect(f"{count:,} requests ran into a time limit") if count else ok("no request ran into a time limit")


@check(
    "output_length",
    looks_at="`usage.completion_tokens` of every answer beside the length that was asked for.",
    rule="suspect where any answer's length is off; invalid where all answers together are off by more than 1 %.",
    why="Another number of tokens is other work: throughput and latency are then not of the workload, and not "
    "comparable with an engine that kept to it.",
    fails_as=("suspect", "invalid"),
    action="Make the engine ignore the end-of-sequence token, and see that its context length has room for the answer.",
)
def _output_length(evidence: Evidence) -> Saw:
    answers = evidence.counted.dropna(subset=["output_tokens", "output_tokens_asked"])
    if answers.empty:
        return not_applicable("no answer has both an asked and a counted length")
    off = int((answers["output_tokens"] != answers["output_tokens_asked"]).sum())
    got, asked = answers["output_tokens"].sum(), answers["output_tokens_asked"].sum()
    if not off:
        return ok(f"all {len(answers):,} answers have the asked length")
    text = f"{off:,} of {len(answers):,} answers have another length; {got:,.0f} tokens instead of {asked:,.0f}"
    return invalid(text) if abs(got - asked) > _LENGTH_INVALID * asked else suspect(text)


@check(
    "input_token_count",
    looks_at="`usage.prompt_tokens` of every success beside the prompt's length by the workload.",
    rule="the median excess is below 0, or above what is added by a chat template (1,024 tokens) or, for completions, "
    "by a begin token (8).",
    why="Total throughput counts these tokens. A template adds the same to each prompt (SmolLM2's 30; templates with a "
    "long default system prompt some hundred); anything else is a truncated prompt, a wrong tokenizer or a wrong "
    "count.",
    fails_as=("invalid",),
    action="Compare the served model's tokenizer with the workload's; look for truncation in the server's log.",
)
def _input_token_count(evidence: Evidence) -> Saw:
    excess = _input_excess(evidence)
    if excess.empty:
        return not_applicable("the server counted no input tokens")
    endpoint = evidence.spec.workload.parameters.get("endpoint")
    most = _BEGIN_TOKENS if endpoint == "completions" else _TEMPLATE_TOKENS
    median = float(excess.median())
    text = f"the server counts {median:+,.0f} tokens beside the prompt (median)"
    return ok(text) if 0 <= median <= most else invalid(text)


@check(
    "input_token_spread",
    looks_at="How far that excess differs between requests.",
    rule="for more than 1 % of the successes it differs from the median by more than 8 tokens and 2 % of the prompt.",
    why="A template adds the same to each prompt, give or take the tokens where it meets the text. Some prompts are "
    "truncated, or counted in another way.",
    fails_as=("suspect",),
    action="Look for truncation in the server's log, and see that its context length holds the longest prompt.",
)
def _input_token_spread(evidence: Evidence) -> Saw:
    excess = _input_excess(evidence)
    if excess.empty:
        return not_applicable("the server counted no input tokens")
    allowed = (0.02 * evidence.successes["input_tokens_asked"].loc[excess.index]).clip(lower=8)
    off = int(((excess - excess.median()).abs() > allowed).sum())
    text = f"{off:,} of {len(excess):,} prompts are counted otherwise than the rest"
    return suspect(text) if off > 0.01 * len(excess) else ok(text)


@check(
    "token_count_varies",
    looks_at="The server's token counts of the same request in different rounds.",
    rule="any request has different input or output counts in two rounds.",
    why="Every round sends the same bytes, so that a count that changes is wrong at least once.",
    fails_as=("suspect",),
    action="Look at those requests in requests.parquet; report it to the engine.",
)
def _token_count_varies(evidence: Evidence) -> Saw:
    done = evidence.successes
    if done["round"].nunique() < 2:
        return not_applicable("a single round")
    counts = done.groupby("request_index")[["input_tokens", "output_tokens"]].nunique()
    varied = int((counts > 1).any(axis=1).sum())
    text = f"{varied:,} of {len(counts):,} requests have token counts that differ between rounds"
    return suspect(text) if varied else ok(text)


@check(
    "more_events_than_tokens",
    looks_at="Events that carried content beside `usage.completion_tokens`.",
    rule="more than 1 % of the successes have over one event more than output tokens.",
    why="An event carries at least one token (one may be a remainder of the text at the end): the server counts too "
    "few, and the throughput is too low.",
    fails_as=("suspect",),
    action="Count the tokens of some answers with the model's tokenizer; report it to the engine.",
)
def _more_events_than_tokens(evidence: Evidence) -> Saw:
    done = evidence.successes.dropna(subset=["chunks", "output_tokens"])
    if done.empty:
        return not_applicable("no answer has both events and a count")
    more = int((done["chunks"] > done["output_tokens"] + 1).sum())
    text = f"{more:,} of {len(done):,} answers have more events than tokens"
    return suspect(text) if more > _EVENTS_SUSPECT * len(done) else ok(text)


def _input_excess(evidence: Evidence) -> pd.Series[float]:
    done = evidence.successes.dropna(subset=["input_tokens", "input_tokens_asked"])
    return (done["input_tokens"] - done["input_tokens_asked"]).astype(float)
