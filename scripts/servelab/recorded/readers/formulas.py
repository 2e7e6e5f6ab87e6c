"""The formulas behind figures: of a tool's releases, and those that a block's own arithmetic shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from servelab.metrics.definitions import METRICS
from servelab.recorded.readers.figures import VALUE, Key, PrintedFigure, ValueRange, by_name


class DefinedBy(NamedTuple):
    """A tool's definition of a metric, where it differs from docs/reference/metrics.md."""

    text: str
    releases: str | None = None
    """Releases that define it so, `<…` or `>=…`; others as we do. None for all."""


class Formula(NamedTuple):
    """The formula of a figure."""

    id: str | None
    """A metric of docs/reference/metrics.md, or `tool:metric` for a definition of the tool's own; None if unknown."""
    releases: str | None
    """Releases of the tool that the figure may be from."""
    text: str


def formulas_of(
    tool: str, version: str | None, metrics: Iterable[str], definitions: Mapping[str, DefinedBy]
) -> dict[str, Formula]:
    """Metric → its formula, in a block from these releases of a tool."""
    found = {}
    for metric in metrics:
        own, ours = f"{tool}:{metric}", METRICS.get(metric).formula if metric in METRICS.names() else None
        defined = definitions.get(metric)
        if defined is None:
            found[metric] = Formula(metric, version, ours) if ours else Formula(own, version, f"as {tool} names it")
        elif (is_so := _is_within(version, defined.releases)) is None:
            text = f"{own} in releases {defined.releases}, else {metric}: the result does not say which it is from"
            found[metric] = Formula(None, version, text)
        else:
            found[metric] = Formula(own, version, defined.text) if is_so else Formula(metric, version, ours or "")
    return found


def narrowest(releases: Iterable[str | None]) -> str | None:
    """The releases in all of some ranges, as in `>=0.11.1,<0.13.0`."""
    parts = [part for each in releases if each for part in each.split(",")]
    low = max((part for part in parts if part[0] == ">"), key=_digits, default=None)
    high = min((part for part in parts if part[0] == "<"), key=_digits, default=None)
    return ",".join(each for each in (low, high) if each) or None


def _is_within(version: str | None, releases: str | None) -> bool | None:
    """Whether a release, or all of a range, is among releases `<…` or `>=…`; None if only a part of it is."""
    if releases is None:
        return True
    parts = (version or "").split(",")
    low = max((_digits(part) for part in parts if part[:1] != "<"), default=[])
    high = min((_digits(part) for part in parts if part[:1] != ">" and part), default=[10**6])
    edge, is_below = _digits(releases), releases[0] == "<"
    if low >= edge:
        return not is_below
    is_one = not (version or "<").startswith(("<", ">"))
    return is_below if (high < edge if is_one else high <= edge) else None


def _digits(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


_UNSURE = ("unsure_per_output_token_ms", "mean")
"""A time per token that is the run's in some releases, and a mean over requests in others."""
_OF_TOKENS = ("ttft_ms", "tpot_ms", "itl_ms")
_OF_REQUESTS = ("normalized_e2el_ms", "mean")
_OF_RUN = ("run_time_per_output_token_ms", VALUE)
_ONE_PER_SECOND = ValueRange.around(1000.0)
"""Milliseconds per token × tokens per second."""
_THREE_DIGITS = 0.1
"""Milliseconds; half a unit of the third digit of a second is 0.5."""


def what_they_are(
    figures: Mapping[Key, PrintedFigure], ranges: Mapping[Key, ValueRange], settings: Mapping[str, Any]
) -> tuple[dict[Key, PrintedFigure], list[str]]:
    """The figures under the names of what the block's own arithmetic shows them to be, and a note on each change."""
    found = {key: each for key, each in figures.items() if key != _UNSURE or key in ranges}
    notes, of = [], by_name(ranges)
    done = figures.get(("requests_completed", VALUE))
    if done and done.value == 0:
        found = {key: each._replace(value=None) if key[0].endswith("_ms") else each for key, each in found.items()}
        notes.append("no request succeeded, so no latency was measured")
    if _is_not_streamed(found, of):
        silent = {key: each._replace(value=None) for key, each in found.items() if key[0] in _OF_TOKENS}
        found |= {key: each for key, each in silent.items() if key[0] == "ttft_ms" or not found[key].value}
        notes.append("TTFT equals E2EL in every statistic: answers were not streamed, so nobody saw a first token")
    for key in [key for key in (_UNSURE, ("tpot_ms", "mean")) if key in ranges]:
        of_run = _is_of_the_run(ranges[key], of, settings)
        is_exact = key == _UNSURE and found[key].half_unit < _THREE_DIGITS  # as only the run's was printed
        if is_exact or (of_run and sum(metric == key[0] for metric, _ in found) == 1):
            found[_OF_RUN] = found.pop(key)._replace(metric=_OF_RUN[0], statistic=VALUE)
            notes.append("a time per token × output tokens per second is 1: it is the run's, and no request's latency")
        elif key == _UNSURE and of_run is None:
            notes.append(f"line {found.pop(key).line}: a time per token is not read: of the run, or a mean of requests")
        elif key == _UNSURE:
            found[_OF_REQUESTS] = found.pop(key)._replace(metric=_OF_REQUESTS[0])
    return found, notes


def _is_not_streamed(figures: Mapping[Key, PrintedFigure], of: Mapping[str, ValueRange]) -> bool:
    """Whether TTFT is E2EL in all statistics, of answers with more than one token."""
    tokens, events = of.get("mean output_tokens_per_request"), of.get("mean events_per_request")
    if tokens is None and {"output_tokens", "requests_completed"} <= of.keys():
        tokens = of["output_tokens"] / of["requests_completed"]
    if tokens is not None and tokens.low <= 1.01:
        return False
    pairs = [(each, figures.get(("e2el_ms", key[1]))) for key, each in figures.items() if key[0] == "ttft_ms"]
    both = [(first.value, whole.value) for first, whole in pairs if whole and None not in (first.value, whole.value)]
    is_one_event = tokens is not None and events is not None and events.low <= 1
    return is_one_event or (bool(both) and all(first == whole and first for first, whole in both))


def _is_of_the_run(each: ValueRange, of: Mapping[str, ValueRange], settings: Mapping[str, Any]) -> bool | None:
    """Whether a time per token is 1 / throughput of several requests in flight; None if nothing shows it."""
    rate, latency, requests = (of.get(name) for name in ("output_tokens_per_s", "mean e2el_ms", "requests_per_s"))
    if rate is None and requests and (tokens := of.get("mean output_tokens_per_request")):
        rate = requests * tokens
    in_flight = settings.get("max_concurrency") or (latency and requests and latency.low * requests.low / 1000)
    if rate is None or not isinstance(in_flight, int | float):
        return None
    is_one = (each * rate).meets(_ONE_PER_SECOND)
    return None if is_one and in_flight <= 1.5 else is_one
