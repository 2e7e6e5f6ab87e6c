"""A bench as one page, and as a few lines of plain words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from servelab.bench.bench_result import Bench, PointResult
from servelab.core.figure_text import estimate, figure, mark, metric_label
from servelab.engines.endpoint import not_known
from servelab.report.page import Cell, Page, Section, Table

_RATES = ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s")
_LATENCIES = ("ttft_ms", "tpot_ms", "e2el_ms")
_REMARK = (
    "± is half of the 95 % interval over visits: each load was sent once in every visit. The server was not started "
    "again between them, so the interval does not include what differs from start to start, which a study measures. "
    "P99 is over the requests of all visits. Metrics and checks are those of docs/reference."
)


def bench_page(bench: Bench) -> Page:
    """The page."""
    sections = [
        Section("Loads", _loads(bench.points), kind="figures"),
        Section("Checks that failed", _failed(bench.points)),
        Section("What was sent, and what the server says", _facts(bench)),
        Section("What cannot be known of a server that already runs", _table(["What", "Why"], _unknowns(bench))),
    ]
    return Page(
        title=f"{bench.asked.model} at {bench.asked.url}",
        lead=" ".join(plain_words(bench)[:3]),
        sections=[section for section in sections if section.table.rows or section.text],
        remark=_REMARK,
    )


def plain_words(bench: Bench) -> list[str]:
    """Four lines: the most it gave, how long an answer takes, whether to believe it, what is not known."""
    best = max(bench.points, key=lambda point: fmean(point.visits.get("output_tokens_per_s") or [0.0]))
    first, last = bench.points[0], bench.points[-1]
    requests, failed = sum(point.requests for point in bench.points), sum(point.failed for point in bench.points)
    latency = f"With {first.name} the first token comes after {_text(first, 'ttft_ms')} ms"
    if last is not first:
        latency += f", with {last.name} after {_text(last, 'ttft_ms')} ms"
    latency += f"; then a token every {_text(first, 'tpot_ms')} ms"
    latency += f" and {_text(last, 'tpot_ms')} ms." if last is not first else "."
    doubtful = [point.name for point in bench.points if point.validity != "ok"]
    believed = f"Do not rely on: {', '.join(doubtful)} (see the report)." if doubtful else "No check failed."
    return [
        f"{bench.asked.model} gives at most {_text(best, 'output_tokens_per_s')} output tokens per second, "
        f"with {best.name}.",
        latency,
        f"{requests - failed:,} of {requests:,} requests succeeded; each load was sent {bench.load.visits} times. "
        f"{believed}",
        f"Not known: {', '.join(name for name, _ in _unknowns(bench))}.",
    ]


def _loads(points: Sequence[PointResult]) -> Table:
    columns = ["Load", *(metric_label(name) for name in (*_RATES, *_LATENCIES)), "Requests", "Failed"]
    rows = []
    for point in points:
        why = "; ".join(f"{each.check.replace('_', ' ')}: {each.saw}" for each in point.failures)
        cells = [Cell(point.name, mark=mark(point.validity), mark_why=why)]
        for name in (*_RATES, *_LATENCIES):
            p99 = f"P99 {figure(point.p99[name])}" if name in _LATENCIES and name in point.p99 else ""
            cells.append(Cell(_text(point, name), note=p99))
        rows.append([*cells, Cell(f"{point.requests:,}"), Cell(f"{point.failed:,}")])
    return Table(columns, rows)


def _failed(points: Sequence[PointResult]) -> Table:
    rows = [
        (point.name, each.check.replace("_", " "), each.level, each.saw, each.action or "")
        for point in points
        for each in point.failures
    ]
    return _table(["Load", "Check", "Level", "Found", "What to do"], rows)


def _table(columns: list[str], rows: Iterable[Sequence[str]]) -> Table:
    return Table(columns, [[Cell(text) for text in row] for row in rows])


def _facts(bench: Bench) -> Table:
    load, asked = bench.load, bench.asked
    forced = "exactly" if load.is_length_forced else "at most, they end by themselves;"
    facts = [
        ("prompts", f"random words, each different, {load.mean_input_tokens:,.1f} tokens on average by its count"),
        ("answers", f"{forced} {load.output_tokens:,} tokens, {load.mean_output_tokens:,.1f} on average by its count"),
        ("sent to", f"{load.endpoint}, {load.visits} visits of each load, by {bench.client} on {bench.host}"),
        ("model", asked.model + (f"; it also has {', '.join(asked.other_models)}" if asked.other_models else "")),
        ("longest sequence", f"{asked.longest_tokens:,} tokens" if asked.longest_tokens else "it does not say"),
        ("measured", f"{bench.started_at} to {bench.finished_at}, Servelab {bench.servelab}, seed {load.seed}"),
    ]
    return _table(["Of", "Found"], facts)


def _unknowns(bench: Bench) -> Iterator[tuple[str, str]]:
    cached = [point.cached_percent for point in bench.points if point.cached_percent is not None]
    hits = f"it reports {max(cached):.0f} % of a load's prompt tokens from a cache" if cached else "it does not say"
    return not_known(bench.asked, f"no prompt was sent twice; {hits}")


def _text(point: PointResult, metric: str) -> str:
    interval = point.interval(metric)
    return "–" if interval is None else estimate(*interval)
