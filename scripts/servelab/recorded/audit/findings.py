"""Findings of the audit, and the rules that check a run's logs for contradictions.

They compare logs with themselves, the baseline and the study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from servelab.core.figure_text import metric_label
from servelab.recorded.logs import Logs, figures_of, token_rates
from servelab.recorded.readers import VALUE, Block
from servelab.recorded.readers.figures import Key
from servelab.results.checks import Level
from servelab.study.recorded.commands import read_command, same_command
from servelab.study.recorded.published_claims import RecommendedClaim, SuccessClaim
from servelab.study.recorded.study import RecordedCandidate, RecordedStudy

Verdict = Literal["contradicted", "arithmetic right, figures unsound", "unproven", "rounded", "confirmed"]
"""The worst first. `confirmed`: equal to the published digit; `rounded`: different, but rounding explains it;
`unproven`: the logs lack the figures; `arithmetic right, figures unsound`: it would be one of the first two, but a rate
that it rests on is not tokens / duration; `contradicted` otherwise."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Row = dict[str, Any]
"""A finding: a row of `schemas.CLAIMS`, without study, source and rule."""


def finding(claim: str, verdict: Verdict | bool, reason: str, **facts: Any) -> Row:
    """The claim in words, its verdict or whether it holds, and the fact behind that; further columns are `facts`."""
    if isinstance(verdict, bool):
        verdict = "confirmed" if verdict else "contradicted"
    return {"claim": claim, "verdict": verdict, "reason": reason, "where": "", **facts}


def summary(found: Row) -> str:
    """In short: the contradicted figure and its recomputed value, or the reason."""
    if found["verdict"] != "contradicted" or not found.get("metric") or not found.get("published"):
        return str(found["reason"])
    return f"{metric_label(found['metric'])} is {found['published']}, by the rest of the log {found['recomputed']}"


@dataclass(frozen=True)
class AuditEvidence:
    """The logs of a study and all that its claims are compared with."""

    study: RecordedStudy
    logs: Logs
    chosen: Mapping[str, str]
    """Stage → its winner when decided from the logs, as `<stage>/<candidate>`."""
    recommended: str
    """The serving command that the search over the logs recommends."""
    others: tuple[Logs, ...] = ()
    """Other recorded studies, whose figures a publication may have by mistake."""


@dataclass(frozen=True)
class Run:
    """A candidate on a workload with logs."""

    study: RecordedStudy
    logs: Logs
    reference: str
    workload: str

    @property
    def candidate(self) -> RecordedCandidate:
        """The candidate as the study describes it."""
        return self.study.candidates[self.reference]

    @property
    def command(self) -> str:
        """The serving command of its logs; without logs, the one that was published."""
        return self.candidate.command_on(self.workload)

    @property
    def blocks(self) -> list[Block]:
        """Its results, one per round; broken logs have none."""
        return self.logs.rounds(self.reference, self.workload)

    def finding(self, claim: str, verdict: Verdict | bool, reason: str, **facts: Any) -> Row:
        """A finding on it; the claim ends with its name."""
        where = f"{claim} {self.reference}, {self.workload}"
        return finding(where, verdict, reason, candidate=self.reference, workload=self.workload) | facts


def plain(value: float) -> str:
    """A figure with all its digits."""
    return f"{value:.10g}"


_UNLIKE = 0.01
"""Relative difference above which requests are not the same; a few failures in a thousand stay below it."""
_LEAST_SHARE = 0.5
"""Of the time that a token has: tools weigh requests differently, and a chunk may hold tokens."""


class RunRule(NamedTuple):
    """A rule on the logs of a run."""

    name: str
    compares: str
    action: str
    """The advice for a run that it contradicts."""
    fails_as: Level
    """Validity of such a run: `suspect` or `invalid`."""
    look: Callable[[Run], Iterator[Row]]


RUN_RULES: list[RunRule] = []


def _rule(action: str, *, fails_as: Level = "suspect") -> Callable[[Callable[[Run], Iterator[Row]]], None]:
    """Makes the decorated function the run rule of its name; its docstring begins with what it compares."""

    def register(look: Callable[[Run], Iterator[Row]]) -> None:
        says = str(look.__doc__).partition("\n")[0].rstrip(".")
        RUN_RULES.append(RunRule(look.__name__[1:], says[:1].lower() + says[1:], action, fails_as, look))

    return register


def served_alike(logs: Logs, side: str, against: str, workload: str) -> Iterator[Row]:
    """One finding for two candidates on a workload; none if the logs count neither successes nor input tokens."""
    texts, alike = [], True
    for metric in ("requests_completed", "input_tokens"):
        pair = [logs.quantity(name, workload, metric) for name in (side, against)]
        values = [quantity.value for quantity in pair if quantity is not None]
        if len(values) == 2:
            alike &= abs(values[0] - values[1]) <= _UNLIKE * max(values)
            texts.append(f"{plain(values[0])} and {plain(values[1])} {metric.replace('_', ' ')}")
    if texts:
        words, facts = f"{side} and {against} served alike, {workload}", {"candidate": side, "against": against}
        yield finding(words, alike, "; ".join(texts), workload=workload, **facts)


@_rule("Look at the log; ask its author for it. The other logs of the run count.")
def _broken_log(run: Run) -> Iterator[Row]:
    """That each log is there and gives one result that does not contradict itself or `prompts`."""
    for log in run.logs.broken(run.reference, run.workload):
        cause = "missing log" if log.is_missing else "broken log"
        facts = {"cause": cause, "where": log.file, "line": log.line}
        yield run.finding(f"Log {log.file} of", "contradicted", log.reason, **facts)


@_rule("Figures are those of the command that ran, which tables and recommendation name.")
def _never_ran(run: Run) -> Iterator[Row]:
    """The command that is published for a candidate with those of its logs.

    What never ran contradicts no figure, so it is `unproven`. A command that crashed did run.
    """
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
    claims = (claim.command for claim in run.study.claims if isinstance(claim, RecommendedClaim))
    recommended = any(same_command(command, candidate.command, names) for command in claims)
    facts = {"published": candidate.command, "recomputed": ran, "candidate": run.reference, "workload": workload}
    cause = f"{'recommended ' if recommended else ''}command never ran"
    yield finding(f"Published command of {run.reference} ran, {workload}", "unproven", reason, cause=cause, **facts)


@_rule("Compare by tokens / duration, or only with runs of the same tool: its rates are over a different time.")
def _token_rate(run: Run) -> Iterator[Row]:
    """Output and total tokens/s with tokens / duration."""
    for block in run.blocks:
        duration = block.value("duration_s") or 0.0
        for metric, (printed, computed) in token_rates(block).items():
            reason, agrees = f"{computed.value * duration:.0f} tokens in {plain(duration)} s", printed.meets(computed)
            if not agrees:
                percent = 100 * (printed.value / computed.value - 1)
                reason += f": {percent:+.2f} %, so the rate is over a different time"
            instead = None if agrees else f"{computed.value:.2f}"
            yield _of_log(run, block, (metric, VALUE), instead, computed.value, reason)


@_rule(
    "Do not use its TPOT and ITL; E2EL is right. A client that ignores the reasoning stream takes the first "
    "chunk that it knows, or the last, as the first token."
)
def _token_latency(run: Run) -> Iterator[Row]:
    """Mean TPOT and ITL with what E2EL and TTFT leave to each token, (E2EL − TTFT) / (tokens of a request − 1)."""
    for block in run.blocks:
        total, first = block.value("e2el_ms", "mean"), block.value("ttft_ms", "mean")
        completed, tokens = block.value("requests_completed"), block.value("output_tokens")
        if total is None or first is None or not completed or tokens is None or tokens <= completed:
            continue
        each = (total - first) / (tokens / completed - 1)
        reason = f"E2EL {plain(total)} ms less TTFT {plain(first)} ms, over the {tokens / completed:.1f} tokens of "
        reason += f"a request but the first, is {each:.2f} ms a token"
        for metric in ("tpot_ms", "itl_ms"):
            value = block.value(metric, "mean")
            if value is not None:
                instead = None if value >= _LEAST_SHARE * each else f"{each:.2f}"
                yield _of_log(run, block, (metric, "mean"), instead, each, reason)


@_rule("Read the line; add it to the tool's reader in scripts/servelab/recorded/readers/.")
def _unread_lines(run: Run) -> Iterator[Row]:
    """The lines of a log's result with those its reader knows.

    Such a line contradicts no figure, so it is `unproven`; the tables lack what it says.
    """
    for block in run.blocks:
        for line, text in block.unknown:
            place = {"published": text.strip(), "where": Path(block.file).name, "line": line}
            yield run.finding("Unread line of", "unproven", f"no reader of {block.tool} knows it", **place)


@_rule("Do not use its peak: it is over much less than a second.")
def _peak_rate(run: Run) -> Iterator[Row]:
    """The peak of output tokens in a second with the output tokens of the whole run."""
    for block in run.blocks:
        peak, tokens = block.value("peak_output_tokens_per_s"), block.value("output_tokens")
        if peak is not None and tokens is not None:
            most = None if peak <= tokens else f"at most {plain(tokens)}"
            reason = f"the run made {plain(tokens)} output tokens"
            yield _of_log(run, block, ("peak_output_tokens_per_s", VALUE), most, None, reason)


@_rule("Find out what failed: rates count only successes, and early failures make the rest faster.")
def _unsaid_failures(run: Run) -> Iterator[Row]:
    """Successes with the workload's prompts, where no claim gives a success rate."""
    prompts, own = run.study.workloads[run.workload].prompts, (run.reference, run.workload)
    if any(isinstance(each, SuccessClaim) and (each.candidate, each.workload) == own for each in run.study.claims):
        return
    for block in run.blocks:
        completed = block.value("requests_completed")
        if completed is None:
            continue
        is_all, value = completed == prompts, plain(completed)
        reason = f"{value} of {prompts} requests succeeded"
        if not is_all:
            reason += f", and the publication does not mention the other {plain(prompts - completed)}"
        key = ("requests_completed", VALUE)
        facts: Row = {"published": value if is_all else None, "recomputed": value, "recomputed_value": completed}
        yield run.finding("Successful requests of", is_all, reason, metric=key[0], **facts, **_place(block, key))


@_rule(
    "Ask the author of the log which model it was; if it is another name of it, add that to `model.names`.",
    fails_as="invalid",
)
def _served_model(run: Run) -> Iterator[Row]:
    """The model of the serving command with the study's."""
    served, model = read_command(run.command).model, run.study.model
    if served is not None:
        own = model.is_of_model(served)
        reason = f"the command serves {served}" + ("" if own else f", the study is about {model.id}")
        facts = {"published": model.id, "recomputed": served, "candidate": run.reference}
        cause = None if own else "wrong model in the command"
        yield finding(f"Model of {run.reference}", own, reason, cause=cause, **facts)


@_rule("Ask the author of the log which engine it was, and correct `engine` or `command`.")
def _serving_engine(run: Run) -> Iterator[Row]:
    """The program of the serving command with the one of its engine."""
    study, engine = run.study, run.study.engines[run.candidate.engine]
    if engine.program is None:
        return
    begins, title = " ".join(read_command(run.command).program), study.engine_name(run.candidate.engine)
    found = next((study.engine_name(name) for name, each in study.engines.items() if each.program == begins), None)
    own, theirs = begins == engine.program, f", as {found}'s commands do" if found else ""
    reason = f"the command begins with `{begins}`" + ("" if own else f"{theirs}, and {title}'s do not")
    facts = {"published": title, "recomputed": found or begins, "candidate": run.reference}
    yield finding(f"Engine of {run.reference}", own, reason, **facts)


@_rule("Ask whether it was measured at all; one run cannot distinguish two candidates.")
def _printed_twice(run: Run) -> Iterator[Row]:
    """The figures of a log with those of every earlier candidate's."""
    mine = {figures_of(block) for block in run.blocks}
    names = list(run.study.candidates)
    earlier = names[: names.index(run.reference)]
    twin = next((name for name in earlier if mine & set(map(figures_of, run.logs.rounds(name, run.workload)))), None)
    reason = f"its log repeats that of {twin}" if twin else "no earlier candidate has these figures"
    if mine:
        yield run.finding("Own run of", not twin, reason, against=twin)


@_rule("Do not compare it with the baseline: other requests were served.")
def _like_the_baseline(run: Run) -> Iterator[Row]:
    """Successes and input tokens with those of the baseline's run on the workload."""
    if run.reference != run.study.baseline:
        yield from served_alike(run.logs, run.reference, run.study.baseline, run.workload)


def _of_log(run: Run, block: Block, key: Key, instead: str | None, computed: float | None, reason: str) -> Row:
    """A printed figure of a log and its value by the rest of the log; `instead` is None if they agree."""
    value = block.value(*key) or 0.0
    values = {"published": plain(value), "published_value": value, "recomputed_value": computed}
    facts = {"recomputed": instead or plain(value), "metric": key[0], "statistic": "mean", **_place(block, key)}
    return run.finding(f"{metric_label(key[0])} of", instead is None, reason, **values, **facts)


def _place(block: Block, key: Key) -> dict[str, str | int]:
    """File and line of a figure."""
    line = next(each.line for each in block.figures if (each.metric, each.statistic) == key)
    return {"where": Path(block.file).name, "line": line}


RUN_RULES.sort(key=lambda rule: rule.name)
