"""The server's own metrics, read in Prometheus' text format, with the same names for every engine."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import httpx
from prometheus_client.parser import text_string_to_metric_families

from servelab.measure.telemetry import SOURCES, Reading, TelemetrySource, Watched

_TIMEOUT_S = 1.0
_MOST_BYTES = 8 << 20
_FOLDS: dict[str, Callable[[list[float]], float]] = {
    **dict.fromkeys(("kv_cache_usage_fraction", "draft_accepted_fraction", "accepted_length_tokens"), statistics.fmean),
    "process_start_unix_s": max,
}
"""Metric → how to combine its label sets (one per engine core) and servers; the others are sums."""
_OF_EACH = "server_"


class ServerMetrics(TelemetrySource):
    """Reads the running server; one that does not listen yet gives no readings, which is not a failure."""

    name = "server"

    @classmethod
    def concerns(cls, watched: Watched) -> bool:
        return watched.engine.metrics_path is not None

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        # A connection that stays open would block one of the few threads that some servers answer with.
        self._client = httpx.Client(trust_env=False, timeout=_TIMEOUT_S, headers={"Connection": "close"})

    def read(self) -> list[Reading]:
        servers, path = self._watched.servers(), self._watched.engine.metrics_path
        try:
            texts = [self._fetch(f"{url}{path}") for url, _ in servers]
        except httpx.ConnectError:
            return []
        return combined([parse(text, self._watched.engine.metric_names) for text in texts])

    def close(self) -> None:
        self._client.close()

    def _fetch(self, url: str) -> str:
        """The page; an exception if it is not complete within the timeout."""
        deadline, page = time.monotonic() + _TIMEOUT_S, bytearray()
        with self._client.stream("GET", url) as answer:
            answer.raise_for_status()
            for part in answer.iter_bytes():
                page += part
                if time.monotonic() > deadline or len(page) > _MOST_BYTES:
                    raise TimeoutError(f"{url} answers too slowly or without end")
        return page.decode()


def parse(text: str, names: Mapping[str, tuple[str, ...]]) -> list[Reading]:
    """Readings from a page: each metric is the sum over its names, and is left out unless all names are there.

    Raises `ValueError` if the page is not in Prometheus' format.
    """
    wanted = {name for group in names.values() for name in group}
    # Only these lines are parsed: most of a page is histograms, and parsing all of it takes milliseconds.
    lines = re.findall(rf"^(?:{'|'.join(map(re.escape, sorted(wanted)))})[ {{].*$", text, re.MULTILINE)
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            if math.isfinite(sample.value):
                found.setdefault(sample.name, []).append(sample.value)
    return [
        Reading(metric, sum(_FOLDS.get(metric, sum)(found[name]) for name in group))
        for metric, group in names.items()
        if found.keys() >= set(group)
    ]


def combined(servers: Sequence[list[Reading]]) -> list[Reading]:
    """Readings of all servers of a run together, and a few of each if they are several."""
    if len(servers) < 2:
        return [reading for readings in servers for reading in readings]
    found: dict[str, list[float]] = {}
    for readings in servers:
        for metric, value, _ in readings:
            found.setdefault(metric, []).append(value)
    each = [
        Reading(f"{_OF_EACH}{metric}", value, str(number))
        for number, readings in enumerate(servers)
        for metric, value, _ in readings
        if f"{_OF_EACH}{metric}" in ServerMetrics.metrics
    ]
    return [
        Reading(metric, _FOLDS.get(metric, sum)(values))
        for metric, values in found.items()
        if len(values) == len(servers)
    ] + each


SOURCES.register(ServerMetrics.name, ServerMetrics)
