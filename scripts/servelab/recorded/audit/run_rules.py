"""Rules that check the logs of a run for contradictions with themselves, the baseline and the study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from servelab.core.yaml_file import metric_label
from servelab.recorded.audit import AuditEvidence, AuditFinding, Run, claim_rule, run_rule
from servelab.recorded.audit.rounding import plain
from servelab.recorded.logs import Logs, figures_of
from servelab.recorded.readers import VALUE, Block
from servelab.recorded.readers.consistency import Key, ValueRange
from servelab.study.recorded.commands import read_command, same_command
from servelab.study.recorded.published_claims import (
    ChangeClaim,
    Claim,
    DifferenceClaim,
    OrderClaim,
    RecommendedClaim,
    SuccessClaim,
)

AMOUNTS = {"output_tokens_per_s": ("output_tokens",), "total_tokens_per_s": ("input_tokens", "output_tokens")}
"""Rate → what it counts."""


def over_duration(block: Block, metric: str) -> tuple[float, ValueRange] | None:
    """Tokens / duration and its range after rounding; None for other metrics, or if the log lacks its parts."""
    figures = {each.metric: each for each in block.figures if each.statistic == VALUE and each.value is not None}
    parts = AMOUNTS.get(metric, ())
    duration = block.value("duration_s")
    if not parts or not duration or not figures.keys() >= set(parts):
        return None
    spans = {
        name: ValueRange.around(block.value(name) or 0.0, figures[name].half_unit) for name in (*parts, "duration_s")
    }
    tokens = sum((spans[part] for part in parts), ValueRange(0.0, 0.0))
    return sum(block.value(part) or 0.0 for part in parts) / duration, tokens / spans["duration_s"]


def printed(block: Block, metric: str) -> ValueRange | None:
    """The range of the printed rate; None if there is none."""
    figure = next((each for each in block.figures if (each.metric, each.statistic) == (metric, VALUE)), None)
    return None if figure is None or figure.value is None else ValueRange.around(figure.value, figure.half_unit)


def unsound_rates(block: Block) -> dict[str, float]:
    """Token rates that the log prints otherwise than its tokens and duration give, and what these give."""
    found = {}
    for metric in AMOUNTS:
        span, computed = printed(block, metric), over_duration(block, metric)
        if span is not None and computed is not None and not span.meets(computed[1]):
            found[metric] = computed[0]
    return found


def honest_rates(logs: Logs, candidates: Iterable[str], workload: str, metric: str) -> dict[str, float] | None:
    """Candidate → tokens / duration, its mean over rounds; None unless a rate that some log prints differs from it."""
    rates, agree = {}, True
    for name in candidates:
        found = []
        for block in logs.rounds(name, workload):
            computed, span = over_duration(block, metric), printed(block, metric)
            if computed is None or span is None:
                return None
            found.append(computed[0])
            agree &= span.meets(computed[1])
        if not found:
            return None
        rates[name] = sum(found) / len(found)
    return None if agree else rates


UNLIKE = 0.01
"""Relative difference above which requests are not the same; a few failures in a thousand stay below it."""


def served_alike(logs: Logs, side: str, against: str, workload: str) -> Iterator[AuditFinding]:
    """One finding for two candidates on a workload; none if the logs count neither successes nor input tokens."""
    texts, alike = [], True
    for metric in ("requests_completed", "input_tokens"):
        pair = [logs.quantity(name, workload, metric) for name in (side, against)]
        values = [quantity.value for quantity in pair if quantity is not None]
        if len(values) == 2:
            alike &= abs(values[0] - values[1]) <= UNLIKE * max(values)
            texts.append(f"{plain(values[0])} and {plain(values[1])} {metric.replace('_', ' ')}")
    if texts:
        yield AuditFinding(
            f"{side} and {against} served alike, {workload}",
            "confirmed" if alike else "contradicted",
            "; ".join(texts),
            candidate=side,
            against=against,
            workload=workload,
        )


@claim_rule(
    "like_with_like",
    claims=(ChangeClaim, DifferenceClaim, OrderClaim),
    compares="successes and input tokens of the runs that a gain is taken from",
    tolerance=f"{100 * UNLIKE:g} %",
)
def _like_with_like(claim: Claim, evidence: AuditEvidence) -> Iterator[AuditFinding]:
    assert isinstance(claim, ChangeClaim | DifferenceClaim | OrderClaim)
    names = claim.candidates if isinstance(claim, OrderClaim) else [claim.candidate, claim.against]
    for name in names[:-1]:
        if name != names[-1]:
            yield from served_alike(evidence.logs, name, names[-1], claim.workload)


_LEAST_SHARE = 0.5


@run_rule(
    "broken_log",
    compares="that each log is there and gives one result that does not contradict itself or `prompts`",
    tolerance="what the rounding of its figures explains",
    fails_as="suspect",
    action="Look at the log; ask its author for it. The other logs of the run count.",
)
def _broken_log(run: Run) -> Iterator[AuditFinding]:
    """A log that gives no figures at all leaves its claims `unproven`."""
    for log in run.logs.broken(run.reference, run.workload):
        yield AuditFinding(
            f"Log {log.file} of {run.reference}, {run.workload}",
            "contradicted",
            log.reason,
            candidate=run.reference,
            workload=run.workload,
            cause="missing log" if log.is_missing else "broken log",
            where=log.file,
            line=log.line,
        )


@run_rule(
    "never_ran",
    compares="the command that is published for a candidate with those of its logs",
    tolerance="order of options, and names of the model",
    fails_as="suspect",
    action="Figures are those of the command that ran, which tables and recommendation name.",
    of_command=True,
)
def _never_ran(run: Run) -> Iterator[AuditFinding]:
    """What never ran contradicts no figure, so it is `unproven`. A command that crashed did run."""
    candidate, on, names = run.candidate, run.study.objective.on, run.study.model_names
    if candidate.outcome not in ("ok", "not run"):
        return
    if not same_command(candidate.command, run.command, names):
        ran, reason = run.command, f"its run on {run.workload} is of another command"
    elif on not in candidate.logs:
        others = ", ".join(candidate.logs)
        ran, reason = None, f"no log of {on}, which decides" + (f"; it ran on {others}" if others else "")
    else:
        return
    recommended = any(
        isinstance(claim, RecommendedClaim) and same_command(claim.command, candidate.command, names)
        for claim in run.study.claims
    )
    yield AuditFinding(
        f"Published command of {run.reference} ran, {on if ran is None else run.workload}",
        "unproven",
        reason,
        published=candidate.command,
        recomputed=ran,
        candidate=run.reference,
        workload=on if ran is None else run.workload,
        cause="recommended command never ran" if recommended else "command never ran",
    )


@run_rule(
    "token_rate",
    compares="output and total tokens/s with tokens / duration",
    tolerance="what the rounding of the three figures explains",
    fails_as="suspect",
    action="Compare by tokens / duration, or only with runs of the same tool: its rates are over a different time.",
)
def _token_rate(run: Run) -> Iterator[AuditFinding]:
    for block in run.blocks:
        for metric in AMOUNTS:
            span, computed = printed(block, metric), over_duration(block, metric)
            if span is None or computed is None:
                continue
            rate, may_be = computed
            duration = block.value("duration_s") or 0.0
            agrees = span.meets(may_be)
            reason = f"{rate * duration:.0f} tokens in {plain(duration)} s"
            if not agrees:
                percent = 100 * ((block.value(metric) or 0.0) / rate - 1)
                reason += f": {percent:+.2f} %, so the rate is over a different time"
            yield _of_log(run, block, (metric, VALUE), None if agrees else f"{rate:.2f}", rate, reason)


@run_rule(
    "token_latency",
    compares="mean TPOT and ITL with what E2EL and TTFT leave to each token, (E2EL − TTFT) / (tokens of a request − 1)",
    tolerance=f"a factor of {1 / _LEAST_SHARE:g} below: tools weigh requests differently, and a chunk may hold tokens",
    fails_as="suspect",
    action="Do not use its TPOT and ITL; E2EL is right. A client that ignores the reasoning stream takes the first "
    "chunk that it knows, or the last, as the first token.",
)
def _token_latency(run: Run) -> Iterator[AuditFinding]:
    for block in run.blocks:
        total, first = block.value("e2el_ms", "mean"), block.value("ttft_ms", "mean")
        completed, tokens = block.value("requests_completed"), block.value("output_tokens")
        if total is None or first is None or not completed or tokens is None or tokens <= completed:
            continue
        each = (total - first) / (tokens / completed - 1)
        for metric in ("tpot_ms", "itl_ms"):
            value = block.value(metric, "mean")
            if value is not None:
                reason = (
                    f"E2EL {plain(total)} ms less TTFT {plain(first)} ms, over the {tokens / completed:.1f} tokens of "
                    f"a request but the first, is {each:.2f} ms a token"
                )
                agrees = value >= _LEAST_SHARE * each
                yield _of_log(run, block, (metric, "mean"), None if agrees else f"{each:.2f}", each, reason)


@run_rule(
    "unread_lines",
    compares="the lines of a log's result with those its reader knows",
    tolerance="none",
    fails_as="suspect",
    action="Read the line; add it to the tool's reader in scripts/servelab/recorded/readers/.",
)
def _unread_lines(run: Run) -> Iterator[AuditFinding]:
    """Such a line contradicts no figure, so it is `unproven`; the tables lack what it says."""
    for block in run.blocks:
        for unknown in block.unknown:
            yield AuditFinding(
                f"Unread line of {run.reference}, {run.workload}",
                "unproven",
                f"no reader of {block.tool} knows it",
                published=unknown.text.strip(),
                candidate=run.reference,
                workload=run.workload,
                where=Path(block.file).name,
                line=unknown.line,
            )


@run_rule(
    "peak_rate",
    compares="the peak of output tokens in a second with the output tokens of the whole run",
    tolerance="none: no second can have more tokens than the run",
    fails_as="suspect",
    action="Do not use its peak: it is over much less than a second.",
)
def _peak_rate(run: Run) -> Iterator[AuditFinding]:
    for block in run.blocks:
        peak, tokens = block.value("peak_output_tokens_per_s"), block.value("output_tokens")
        if peak is not None and tokens is not None:
            most = None if peak <= tokens else f"at most {plain(tokens)}"
            reason = f"the run made {plain(tokens)} output tokens"
            yield _of_log(run, block, ("peak_output_tokens_per_s", VALUE), most, None, reason)


@run_rule(
    "unsaid_failures",
    compares="successes with the workload's prompts, where no claim gives a success rate",
    tolerance="none",
    fails_as="suspect",
    action="Find out what failed: rates count only successes, and early failures make the rest faster.",
)
def _unsaid_failures(run: Run) -> Iterator[AuditFinding]:
    prompts = run.study.workloads[run.workload].prompts
    said = any(
        isinstance(claim, SuccessClaim) and (claim.candidate, claim.workload) == (run.reference, run.workload)
        for claim in run.study.claims
    )
    for block in run.blocks:
        completed = block.value("requests_completed")
        if completed is not None and not said:
            all_of_them = completed == prompts
            yield AuditFinding(
                f"Successful requests of {run.reference}, {run.workload}",
                "confirmed" if all_of_them else "contradicted",
                f"{plain(completed)} of {prompts} requests succeeded"
                + (
                    ""
                    if all_of_them
                    else f", and the publication does not mention the other {plain(prompts - completed)}"
                ),
                published=None if not all_of_them else plain(completed),
                recomputed=plain(completed),
                recomputed_value=completed,
                candidate=run.reference,
                workload=run.workload,
                metric="requests_completed",
                where=Path(block.file).name,
                line=_line(block, ("requests_completed", VALUE)),
            )


@run_rule(
    "served_model",
    compares="the model of the serving command with the study's",
    tolerance="variants, whose name begins with the model's",
    fails_as="invalid",
    action="Ask the author of the log which model it was; if it is another name of it, add that to `model.names`.",
    of_command=True,
)
def _served_model(run: Run) -> Iterator[AuditFinding]:
    served = read_command(run.command).model
    if served is not None:
        own = run.study.model.is_of_model(served)
        yield AuditFinding(
            f"Model of {run.reference}",
            "confirmed" if own else "contradicted",
            f"the command serves {served}" + ("" if own else f", the study is about {run.study.model.id}"),
            published=run.study.model.id,
            recomputed=served,
            candidate=run.reference,
            cause=None if own else "wrong model in the command",
        )


@run_rule(
    "serving_engine",
    compares="the program of the serving command with the one of its engine",
    tolerance="none",
    fails_as="suspect",
    action="Ask the author of the log which engine it was, and correct `engine` or `command`.",
    of_command=True,
)
def _serving_engine(run: Run) -> Iterator[AuditFinding]:
    engine = run.study.engines[run.candidate.engine]
    if engine.program is None:
        return
    begins = " ".join(read_command(run.command).program)
    own = begins == engine.program
    found = next((name for name, other in run.study.engines.items() if other.program == begins), None)
    theirs = f", as {run.study.engine_name(found)}'s commands do" if found else ""
    title = run.study.engine_name(run.candidate.engine)
    yield AuditFinding(
        f"Engine of {run.reference}",
        "confirmed" if own else "contradicted",
        f"the command begins with `{begins}`" + ("" if own else f"{theirs}, and {title}'s do not"),
        published=title,
        recomputed=run.study.engine_name(found) if found else begins,
        candidate=run.reference,
    )


@run_rule(
    "printed_twice",
    compares="the figures of a log with those of every earlier candidate's",
    tolerance="none: two runs never agree in every digit",
    fails_as="suspect",
    action="Ask whether it was measured at all; one run cannot distinguish two candidates.",
)
def _printed_twice(run: Run) -> Iterator[AuditFinding]:
    if not run.blocks:
        return
    mine = {figures_of(block) for block in run.blocks}
    twin = next(
        (
            reference
            for reference in run.study.candidates
            if reference != run.reference
            and mine & {figures_of(block) for block in run.logs.rounds(reference, run.workload)}
        ),
        None,
    )
    names = list(run.study.candidates)
    again = twin is not None and names.index(twin) < names.index(run.reference)
    yield AuditFinding(
        f"Own run of {run.reference}, {run.workload}",
        "contradicted" if again else "confirmed",
        f"its log repeats that of {twin}" if again else "no earlier candidate has these figures",
        candidate=run.reference,
        against=twin if again else None,
        workload=run.workload,
    )


@run_rule(
    "like_the_baseline",
    compares="successes and input tokens with those of the baseline's run on the workload",
    tolerance=f"{100 * UNLIKE:g} %",
    fails_as="suspect",
    action="Do not compare it with the baseline: other requests were served.",
)
def _like_the_baseline(run: Run) -> Iterator[AuditFinding]:
    if run.reference != run.study.baseline:
        yield from served_alike(run.logs, run.reference, run.study.baseline, run.workload)


def _of_log(run: Run, block: Block, key: Key, instead: str | None, computed: float | None, reason: str) -> AuditFinding:
    """A printed figure of a log and its value by the rest of the log; `instead` is None if they agree."""
    metric, statistic = key
    value = block.value(metric, statistic)
    assert value is not None
    return AuditFinding(
        f"{metric_label(metric)} of {run.reference}, {run.workload}",
        "confirmed" if instead is None else "contradicted",
        reason,
        published=plain(value),
        recomputed=instead or plain(value),
        published_value=value,
        recomputed_value=computed,
        candidate=run.reference,
        workload=run.workload,
        metric=metric,
        statistic="mean",
        where=Path(block.file).name,
        line=_line(block, key),
    )


def _line(block: Block, key: Key) -> int | None:
    """Line of a figure in its log."""
    return next((figure.line for figure in block.figures if (figure.metric, figure.statistic) == key), None)
