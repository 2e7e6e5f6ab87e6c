"""The formula that a figure is by: one label may have several over the releases of a tool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from servelab.metrics.definitions import METRICS
from servelab.recorded.readers.consistency import Key, ValueRange, by_name
from servelab.recorded.readers.figures import VALUE, PrintedFigure

_UNSURE = "unsure_per_output_token_ms"
"""A time per token that is the run's in some releases, and a mean over requests in others."""
_RUN_TIME = "run_time_per_output_token_ms"
_ONE = ValueRange(1.0, 1.0)
_THREE_DIGITS = 0.1
"""Milliseconds; half a unit of the third digit of a second is 0.5."""


class DefinedBy(NamedTuple):
    """How a tool defines a metric, where that differs from docs/reference/metrics.md."""

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
    """What is in all of some ranges of releases, as in `>=0.11.1,<0.13.0`."""
    parts = [part for each in releases if each for part in each.split(",")]
    low = max((part for part in parts if part[0] == ">"), key=_number, default=None)
    high = min((part for part in parts if part[0] == "<"), key=_number, default=None)
    return ",".join(each for each in (low, high) if each) or None


def _is_within(version: str | None, releases: str | None) -> bool | None:
    """Whether a release, or all of a range, is among releases `<…` or `>=…`; None if only a part of it is."""
    if releases is None:
        return True
    parts = (version or "").split(",")
    low = max((_number(part) for part in parts if part[:1] != "<"), default=[])
    high = min((_number(part) for part in parts if part[:1] != ">" and part), default=[10**6])
    edge, is_below = _number(releases), releases[0] == "<"
    if low >= edge:
        return not is_below
    is_one = not (version or "<").startswith(("<", ">"))
    return is_below if (high < edge if is_one else high <= edge) else None


def _number(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


def what_they_are(
    figures: Mapping[Key, PrintedFigure], ranges: Mapping[Key, ValueRange], settings: Mapping[str, Any]
) -> tuple[dict[Key, PrintedFigure], list[str]]:
    """The figures under the names of what the block's own arithmetic shows them to be, and a note on each change."""
    found, notes = dict(figures), []
    if _is_not_streamed(found, by_name(ranges)):
        silent = [key for key, each in found.items() if key[0] == "ttft_ms" or (_is_per_token(key) and not each.value)]
        found |= {key: found[key]._replace(value=None) for key in silent}
        notes.append("TTFT equals E2EL in every statistic: answers were not streamed, so nobody saw a first token")
    for key in [key for key in found if key in ((_UNSURE, "mean"), ("tpot_ms", "mean"))]:
        of_run = _is_of_the_run(key, ranges, settings)
        is_alone = sum(metric == key[0] for metric, _ in found) == 1
        is_exact = key[0] == _UNSURE and found[key].half_unit < _THREE_DIGITS  # as only the run's was printed
        if is_exact or (of_run and is_alone):
            found[_RUN_TIME, VALUE] = found.pop(key)._replace(metric=_RUN_TIME, statistic=VALUE)
            notes.append("a time per token × output tokens per second is 1: it is the run's, and no request's latency")
        elif key[0] == _UNSURE and of_run is None:
            notes.append(f"line {found.pop(key).line}: a time per token is not read: of the run, or a mean of requests")
        elif key[0] == _UNSURE:
            found["normalized_e2el_ms", "mean"] = found.pop(key)._replace(metric="normalized_e2el_ms")
    return found, notes


def _is_per_token(key: Key) -> bool:
    return key[0] in ("tpot_ms", "itl_ms")


def _is_not_streamed(figures: Mapping[Key, PrintedFigure], of: Mapping[str, ValueRange]) -> bool:
    """Whether TTFT is E2EL in all statistics, of answers with more than one token."""
    first = {key[1]: each.value for key, each in figures.items() if key[0] == "ttft_ms" and each.value is not None}
    whole = {key[1]: each.value for key, each in figures.items() if key[0] == "e2el_ms" and each.value is not None}
    both = first.keys() & whole.keys()
    tokens, events = of.get("mean output_tokens_per_request"), of.get("mean events_per_request")
    if tokens is None and {"output_tokens", "requests_completed"} <= of.keys():
        tokens = of["output_tokens"] / of["requests_completed"]
    if tokens is not None and tokens.low <= 1.01:
        return False
    is_one_event = tokens is not None and events is not None and events.low <= 1
    return is_one_event or (bool(both) and all(first[name] == whole[name] and first[name] for name in both))


def _is_of_the_run(key: Key, ranges: Mapping[Key, ValueRange], settings: Mapping[str, Any]) -> bool | None:
    """Whether a time per token is 1 / throughput of several requests in flight; None if nothing shows it."""
    of = by_name(ranges)
    rate, latency, requests = (of.get(name) for name in ("output_tokens_per_s", "mean e2el_ms", "requests_per_s"))
    if rate is None and requests and (tokens := of.get("mean output_tokens_per_request")):
        rate = requests * tokens
    in_flight = settings.get("max_concurrency") or (latency and requests and latency.low * requests.low / 1000)
    if rate is None or not isinstance(in_flight, int | float):
        return None
    is_one = (ranges[key] * ValueRange(1e-3, 1e-3) * rate).meets(_ONE)
    return None if is_one and in_flight <= 1.5 else is_one
