"""Rules that check the logs of a run for contradictions with themselves, the baseline and the study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from servelab.core.yaml_file import metric_label
from servelab.recorded.audit import AMOUNTS, AuditFinding, Run, Verdict, plain, run_rule, token_rate
from servelab.recorded.logs import Logs, figures_of
from servelab.recorded.readers import VALUE, Block
from servelab.recorded.readers.figures import Key
from servelab.study.recorded.commands import read_command, same_command
from servelab.study.recorded.published_claims import RecommendedClaim, SuccessClaim

_UNLIKE = 0.01
"""Relative difference above which requests are not the same; a few failures in a thousand stay below it."""
_LEAST_SHARE = 0.5
"""Of the time that a token has: tools weigh requests differently, and a chunk may hold tokens."""


def _verdict(holds: bool) -> Verdict:
    return "confirmed" if holds else "contradicted"


def served_alike(logs: Logs, side: str, against: str, workload: str) -> Iterator[AuditFinding]:
    """One finding for two candidates on a workload; none if the logs count neither successes nor input tokens."""
    texts, alike = [], True
    for metric in ("requests_completed", "input_tokens"):
        pair = [logs.quantity(name, workload, metric) for name in (side, against)]
        values = [quantity.value for quantity in pair if quantity is not None]
        if len(values) == 2:
            alike &= abs(values[0] - values[1]) <= _UNLIKE * max(values)
            texts.append(f"{plain(values[0])} and {plain(values[1])} {metric.replace('_', ' ')}")
    if texts:
        words = f"{side} and {against} served alike, {workload}"
        found = AuditFinding(words, _verdict(alike), "; ".join(texts), candidate=side, against=against)
        yield replace(found, workload=workload)


@run_rule(
    "broken_log",
    "that each log is there and gives one result that does not contradict itself or `prompts`",
    "Look at the log; ask its author for it. The other logs of the run count.",
)
def _broken_log(run: Run) -> Iterator[AuditFinding]:
    """A log that gives no figures at all leaves its claims `unproven`."""
    for log in run.logs.broken(run.reference, run.workload):
        words = f"Log {log.file} of {run.reference}, {run.workload}"
        cause = "missing log" if log.is_missing else "broken log"
        yield run.finding(words, "contradicted", log.reason, cause=cause, where=log.file, line=log.line)


@run_rule(
    "never_ran",
    "the command that is published for a candidate with those of its logs",
    "Figures are those of the command that ran, which tables and recommendation name.",
    of_command=True,
)
def _never_ran(run: Run) -> Iterator[AuditFinding]:
    """What never ran contradicts no figure, so it is `unproven`. A command that crashed did run."""
    candidate, on, names = run.candidate, run.study.objective.on, run.study.model_names
    if candidate.outcome not in ("ok", "not run"):
        return
    if not same_command(candidate.command, run.command, names):
        workload, ran, reason = run.workload, run.command, f"its run on {run.workload} is of another command"
    elif on not in candidate.logs:
        others = ", ".join(candidate.logs)
        workload, ran = on, None
        reason = f"no log of {on}, which decides" + (f"; it ran on {others}" if others else "")
    else:
        return
    recommended = any(
        isinstance(claim, RecommendedClaim) and same_command(claim.command, candidate.command, names)
        for claim in run.study.claims
    )
    yield AuditFinding(
        f"Published command of {run.reference} ran, {workload}",
        "unproven",
        reason,
        published=candidate.command,
        recomputed=ran,
        candidate=run.reference,
        workload=workload,
        cause="recommended command never ran" if recommended else "command never ran",
    )


@run_rule(
    "token_rate",
    "output and total tokens/s with tokens / duration",
    "Compare by tokens / duration, or only with runs of the same tool: its rates are over a different time.",
)
def _token_rate(run: Run) -> Iterator[AuditFinding]:
    for block in run.blocks:
        duration = block.value("duration_s") or 0.0
        for metric in AMOUNTS:
            if (rate := token_rate(block, metric)) is None:
                continue
            reason = f"{rate.computed * duration:.0f} tokens in {plain(duration)} s"
            if not rate.agrees:
                percent = 100 * (rate.printed / rate.computed - 1)
                reason += f": {percent:+.2f} %, so the rate is over a different time"
            instead = None if rate.agrees else f"{rate.computed:.2f}"
            yield _of_log(run, block, (metric, VALUE), instead, rate.computed, reason)


@run_rule(
    "token_latency",
    "mean TPOT and ITL with what E2EL and TTFT leave to each token, (E2EL − TTFT) / (tokens of a request − 1)",
    "Do not use its TPOT and ITL; E2EL is right. A client that ignores the reasoning stream takes the first "
    "chunk that it knows, or the last, as the first token.",
)
def _token_latency(run: Run) -> Iterator[AuditFinding]:
    for block in run.blocks:
        total, first = block.value("e2el_ms", "mean"), block.value("ttft_ms", "mean")
        completed, tokens = block.value("requests_completed"), block.value("output_tokens")
        if total is None or first is None or not completed or tokens is None or tokens <= completed:
            continue
        each = (total - first) / (tokens / completed - 1)
        reason = (
            f"E2EL {plain(total)} ms less TTFT {plain(first)} ms, over the {tokens / completed:.1f} tokens of "
            f"a request but the first, is {each:.2f} ms a token"
        )
        for metric in ("tpot_ms", "itl_ms"):
            value = block.value(metric, "mean")
            if value is not None:
                instead = None if value >= _LEAST_SHARE * each else f"{each:.2f}"
                yield _of_log(run, block, (metric, "mean"), instead, each, reason)


@run_rule(
    "unread_lines",
    "the lines of a log's result with those its reader knows",
    "Read the line; add it to the tool's reader in scripts/servelab/recorded/readers/.",
)
def _unread_lines(run: Run) -> Iterator[AuditFinding]:
    """Such a line contradicts no figure, so it is `unproven`; the tables lack what it says."""
    for block in run.blocks:
        for unknown in block.unknown:
            words, reason = f"Unread line of {run.reference}, {run.workload}", f"no reader of {block.tool} knows it"
            place = {"where": Path(block.file).name, "line": unknown.line}
            yield run.finding(words, "unproven", reason, published=unknown.text.strip(), **place)


@run_rule(
    "peak_rate",
    "the peak of output tokens in a second with the output tokens of the whole run",
    "Do not use its peak: it is over much less than a second.",
)
def _peak_rate(run: Run) -> Iterator[AuditFinding]:
    """No second can have more tokens than the run."""
    for block in run.blocks:
        peak, tokens = block.value("peak_output_tokens_per_s"), block.value("output_tokens")
        if peak is not None and tokens is not None:
            most = None if peak <= tokens else f"at most {plain(tokens)}"
            reason = f"the run made {plain(tokens)} output tokens"
            yield _of_log(run, block, ("peak_output_tokens_per_s", VALUE), most, None, reason)


@run_rule(
    "unsaid_failures",
    "successes with the workload's prompts, where no claim gives a success rate",
    "Find out what failed: rates count only successes, and early failures make the rest faster.",
)
def _unsaid_failures(run: Run) -> Iterator[AuditFinding]:
    prompts, own = run.study.workloads[run.workload].prompts, (run.reference, run.workload)
    if any(isinstance(each, SuccessClaim) and (each.candidate, each.workload) == own for each in run.study.claims):
        return
    for block in run.blocks:
        completed = block.value("requests_completed")
        if completed is None:
            continue
        reason = f"{plain(completed)} of {prompts} requests succeeded"
        if completed != prompts:
            reason += f", and the publication does not mention the other {plain(prompts - completed)}"
        yield run.finding(
            f"Successful requests of {run.reference}, {run.workload}",
            _verdict(completed == prompts),
            reason,
            published=plain(completed) if completed == prompts else None,
            recomputed=plain(completed),
            recomputed_value=completed,
            metric="requests_completed",
            **_place(block, ("requests_completed", VALUE)),
        )


@run_rule(
    "served_model",
    "the model of the serving command with the study's",
    "Ask the author of the log which model it was; if it is another name of it, add that to `model.names`.",
    fails_as="invalid",
    of_command=True,
)
def _served_model(run: Run) -> Iterator[AuditFinding]:
    """A variant's name begins with the model's."""
    served, model = read_command(run.command).model, run.study.model
    if served is not None:
        own = model.is_of_model(served)
        yield AuditFinding(
            f"Model of {run.reference}",
            _verdict(own),
            f"the command serves {served}" + ("" if own else f", the study is about {model.id}"),
            published=model.id,
            recomputed=served,
            candidate=run.reference,
            cause=None if own else "wrong model in the command",
        )


@run_rule(
    "serving_engine",
    "the program of the serving command with the one of its engine",
    "Ask the author of the log which engine it was, and correct `engine` or `command`.",
    of_command=True,
)
def _serving_engine(run: Run) -> Iterator[AuditFinding]:
    study, engine = run.study, run.study.engines[run.candidate.engine]
    if engine.program is None:
        return
    begins, title = " ".join(read_command(run.command).program), study.engine_name(run.candidate.engine)
    found = next((study.engine_name(name) for name, each in study.engines.items() if each.program == begins), None)
    theirs = f", as {found}'s commands do" if found else ""
    own = begins == engine.program
    yield AuditFinding(
        f"Engine of {run.reference}",
        _verdict(own),
        f"the command begins with `{begins}`" + ("" if own else f"{theirs}, and {title}'s do not"),
        published=title,
        recomputed=found or begins,
        candidate=run.reference,
    )


@run_rule(
    "printed_twice",
    "the figures of a log with those of every earlier candidate's",
    "Ask whether it was measured at all; one run cannot distinguish two candidates.",
)
def _printed_twice(run: Run) -> Iterator[AuditFinding]:
    """Two runs never agree in every digit."""
    mine = {figures_of(block) for block in run.blocks}
    names = list(run.study.candidates)
    earlier = names[: names.index(run.reference)]
    twin = next((name for name in earlier if mine & set(map(figures_of, run.logs.rounds(name, run.workload)))), None)
    reason = f"its log repeats that of {twin}" if twin else "no earlier candidate has these figures"
    if mine:
        yield run.finding(f"Own run of {run.reference}, {run.workload}", _verdict(not twin), reason, against=twin)


@run_rule(
    "like_the_baseline",
    "successes and input tokens with those of the baseline's run on the workload",
    "Do not compare it with the baseline: other requests were served.",
)
def _like_the_baseline(run: Run) -> Iterator[AuditFinding]:
    if run.reference != run.study.baseline:
        yield from served_alike(run.logs, run.reference, run.study.baseline, run.workload)


def _of_log(run: Run, block: Block, key: Key, instead: str | None, computed: float | None, reason: str) -> AuditFinding:
    """A printed figure of a log and its value by the rest of the log; `instead` is None if they agree."""
    value = block.value(*key)
    assert value is not None
    return run.finding(
        f"{metric_label(key[0])} of {run.reference}, {run.workload}",
        _verdict(instead is None),
        reason,
        published=plain(value),
        recomputed=instead or plain(value),
        published_value=value,
        recomputed_value=computed,
        metric=key[0],
        statistic="mean",
        **_place(block, key),
    )


def _place(block: Block, key: Key) -> dict[str, str | int]:
    """File and line of a figure."""
    lines = {(figure.metric, figure.statistic): figure.line for figure in block.figures}
    return {"where": Path(block.file).name, "line": lines[key]}
