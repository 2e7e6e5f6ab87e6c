"""guidellm's saved JSON: a document with one block per benchmark.

Source: `guidellm/schemas/base/request_stats.py` and `statistics.py`, `benchmark/schemas/metrics.py` of 0.8.1; of 0.3.0
`benchmark/benchmark.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from servelab.recorded import readers
from servelab.recorded.readers.consistency import LOOSE_REQUESTS, TOKEN_RATIO, Identity, value_of
from servelab.recorded.readers.documents import Saved, text_or_none, unknown_entry
from servelab.recorded.readers.pieces import Piece

_RATES = "up to 0.8.0 over the time from the first to the last token, from 0.8.1 over the measured time"

DEFINITIONS = {
    "normalized_e2el_ms": "up to the last token, weighted by output tokens; percentiles without interpolation",
    "tpot_ms": "weighted by output tokens − 1; percentiles without interpolation",
    "ttft_ms": "percentiles without interpolation",
    "e2el_ms": "percentiles without interpolation",
    "input_tokens_per_s": _RATES,
    "output_tokens_per_s": _RATES,
    "total_tokens_per_s": _RATES,
    "peak_output_tokens_per_s": "largest rate between two events, however close they lie",
    "peak_concurrency": "of successful requests",
    "concurrency": "of successful requests, over the time in which any of them was in flight",
}

_LATENCIES = {
    "time_to_first_token_ms": ("ttft_ms", 1),
    "inter_token_latency_ms": ("tpot_ms", 1),
    "time_per_output_token_ms": ("normalized_e2el_ms", 1),
    "request_latency": ("e2el_ms", 1000),
}
"""Its name → ours, and the factor from its unit."""

_NUMBERS = {
    "requests_per_s": ("requests_per_second", "mean"),
    "input_tokens_per_s": ("prompt_tokens_per_second", "mean"),
    "output_tokens_per_s": ("output_tokens_per_second", "mean"),
    "total_tokens_per_s": ("tokens_per_second", "mean"),
    "peak_output_tokens_per_s": ("output_tokens_per_second", "max"),
    "concurrency": ("request_concurrency", "mean"),
    "peak_concurrency": ("request_concurrency", "max"),
    "input_tokens": ("prompt_token_count", "total_sum"),
    "output_tokens": ("output_token_count", "total_sum"),
}

_STATISTICS = {"mean": "mean", "std_dev": "std", "min": "minimum", "median": "median", "max": "maximum"}

_PERCENTILE = re.compile(r"p\d{2,6}")

_REQUESTS = Identity(
    value_of("requests"),
    tuple(value_of(name) for name in ("requests_completed", "requests_failed", "requests_incomplete")),
    lambda completed, failed, incomplete: completed + failed + incomplete,
    "requests_completed + requests_failed + requests_incomplete",
)


class GuidellmReader:
    """Reads `benchmarks.json`."""

    tool = "guidellm"
    form = "json"
    markers = frozenset({"benchmarks"})

    def knows(self, name: str) -> bool:
        """Whether it writes such a key at the top of a document."""
        return name == "benchmarks"

    def read(self, piece: Piece) -> list[readers.Block]:
        """A block for each benchmark."""
        benchmarks = piece.document["benchmarks"]
        if not isinstance(benchmarks, list) or not benchmarks:
            raise Saved(piece).error("`benchmarks` holds none")
        return [self._block(piece, number, benchmark) for number, benchmark in enumerate(benchmarks)]

    def _block(self, piece: Piece, number: int, benchmark: Any) -> readers.Block:
        saved = Saved(piece)
        place = f"benchmarks[{number}]"
        metrics = _object(saved, benchmark, "metrics", place)
        parent = benchmark if "request_totals" not in metrics else metrics  # up to 0.3 beside the metrics
        totals = _object(saved, parent, "request_totals", f"{place}.metrics")
        for status, metric in (
            ("total", "requests"),
            ("successful", "requests_completed"),
            ("errored", "requests_failed"),
            ("incomplete", "requests_incomplete"),
        ):
            saved.add((metric, readers.VALUE), totals.get(status), f"request_totals.{status}")
        saved.add(("duration_s", readers.VALUE), benchmark.get("duration"), f"{place}.duration")
        for metric, (name, statistic) in _NUMBERS.items():
            if name == "prompt_tokens_per_second" and name not in metrics:
                continue  # up to 0.3
            figures = _successful(saved, metrics, name, place)
            saved.add((metric, readers.VALUE), figures.get(statistic), f"{name}.successful.{statistic}")
        for name, (metric, factor) in _LATENCIES.items():
            _add_distribution(saved, metric, factor, _successful(saved, metrics, name, place), name)
        strategy = (benchmark.get("config") or benchmark.get("args") or {}).get("strategy") or {}
        known = {"request_totals", *_LATENCIES, *(name for name, _ in _NUMBERS.values())}
        return saved.block(
            tool=self.tool,
            version=text_or_none((piece.document.get("metadata") or {}).get("guidellm_version")),
            definitions=DEFINITIONS,
            settings={
                "benchmark": number,
                "strategy": strategy.get("type_"),
                "max_concurrency": strategy.get("max_concurrency"),
                "request_rate_per_s": strategy.get("rate"),
            },
            unknown=[
                unknown_entry(piece, key, value.get("successful"))
                for key, value in metrics.items()
                if key not in known and isinstance(value, dict) and "successful" in value
            ],
            identities=(_REQUESTS, LOOSE_REQUESTS, TOKEN_RATIO),
        )


def _object(saved: Saved, parent: Any, key: str, place: str) -> Mapping[str, Any]:
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, dict):
        raise saved.error(f"`{place}.{key}` is missing")
    return value


def _successful(saved: Saved, metrics: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    """Statistics of a metric over successful requests; empty if there were none."""
    figures = _object(saved, _object(saved, metrics, name, f"{place}.metrics"), "successful", f"{place}.metrics.{name}")
    return figures if figures.get("count") != 0 else {}


def _add_distribution(saved: Saved, metric: str, factor: int, figures: Mapping[str, Any], name: str) -> None:
    named = {_STATISTICS[key]: figures.get(key) for key in _STATISTICS}
    percentiles = figures.get("percentiles") or {}
    for key, value in percentiles.items():
        if not _PERCENTILE.fullmatch(key):
            raise saved.error(f"`{name}.percentiles` has `{key}`, which is no percentile")
        if key != "p50":
            named[_percentile(key)] = value
    for statistic, value in named.items():
        if isinstance(value, float) and factor != 1:
            value = float(Decimal(repr(value)) * factor)
        saved.add((metric, statistic), value, f"{name}.{statistic}")


def _percentile(key: str) -> str:
    """`p001` is the 0.1th, `p05` the 5th, `p999` the 99.9th percentile."""
    digits = key.removeprefix("p")
    whole = digits[:2].lstrip("0") or "0"
    return f"p{whole}.{digits[2:]}" if digits[2:] else f"p{whole}"


readers.READERS.register("guidellm, JSON", GuidellmReader())
