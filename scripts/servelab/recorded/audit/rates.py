"""Token rates by their definition in docs/metrics.md: tokens / duration, which not every tool prints."""

from __future__ import annotations

from collections.abc import Iterable

from servelab.recorded.logs import Logs
from servelab.recorded.readers import VALUE, Block
from servelab.recorded.readers.consistency import Span

AMOUNTS = {"output_tokens_per_s": ("output_tokens",), "total_tokens_per_s": ("input_tokens", "output_tokens")}
"""Rate → what it counts."""


def over_duration(block: Block, metric: str) -> tuple[float, Span] | None:
    """Tokens / duration and its range after rounding; None for other metrics, or if the log lacks its parts."""
    figures = {each.metric: each for each in block.figures if each.statistic == VALUE and each.value is not None}
    parts = AMOUNTS.get(metric, ())
    duration = block.value("duration_s")
    if not parts or not duration or not figures.keys() >= set(parts):
        return None
    spans = {name: Span.around(block.value(name) or 0.0, figures[name].half_unit) for name in (*parts, "duration_s")}
    tokens = sum((spans[part] for part in parts), Span(0.0, 0.0))
    return sum(block.value(part) or 0.0 for part in parts) / duration, tokens / spans["duration_s"]


def printed(block: Block, metric: str) -> Span | None:
    """The range of the printed rate; None if there is none."""
    figure = next((each for each in block.figures if (each.metric, each.statistic) == (metric, VALUE)), None)
    return None if figure is None or figure.value is None else Span.around(figure.value, figure.half_unit)


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
