"""How figures, intervals, marks and metrics are written for readers."""

from __future__ import annotations

import math
import re

NO_BREAK = "\u00a0"
_ACRONYMS = {"ttft", "tpot", "itl", "e2el"}
_NAMES = {
    "capacity_per_s": "requests_per_s_sustained",
    "capacity_in_flight": "requests_in_flight_sustained",
    "goodput_per_s": "requests_per_s_within_SLOs",
}

MARKS = {"suspect": "†", "invalid": "‡"}
"""Validity of a run → the mark beside its figures, wherever they are shown."""
MARKS_KEY = f"{MARKS['suspect']} suspect, {MARKS['invalid']} invalid: see the report's checks"

PLACES_MARK = "≠"
"""Beside a change between runs that were not measured at one place."""
PLACES_KEY = f"{PLACES_MARK} not measured at one place: see the warning at the top"


def mark(*validities: str | None) -> str:
    """Mark of a figure computed from runs of these validities: that of the worst; empty if all are valid."""
    return next((MARKS[level] for level in reversed(MARKS) if level in validities), "")


def _is_missing(value: float | None) -> bool:
    """Null or NaN, which is what a table holds if nothing was measured."""
    return value is None or math.isnan(value)


def figure(value: float | None) -> str:
    """Three digits, or the whole integer part with thousands separated: `1,204`, `81.3`, `0.0213`; `–` if missing."""
    if value is None or math.isnan(value):
        return "–"
    size = abs(value)
    if size >= 99.95 or value == 0:
        text = f"{value:,.0f}"
    elif size >= 9.995:
        text = f"{value:.1f}"
    elif size >= 0.9995:
        text = f"{value:.2f}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−")


def estimate(value: float | None, low: float | None, high: float | None) -> str:
    """A mean with the half width of its 95 % interval, to the mean's last digit: `1,204 ± 12`, `4.88 ± 0.07`.

    A width that would round to 0 gets one digit: `1,204 ± 0.3`. Without an interval it is the mean alone.
    """
    if value is None or low is None or high is None or any(_is_missing(each) for each in (value, low, high)):
        return figure(value)
    mean, half = figure(value), (high - low) / 2
    width = f"{half:,.{len(mean.partition('.')[2])}f}"
    if half and not width.strip("0."):
        width = f"{half:.1g}"
    return f"{mean}{NO_BREAK}±{NO_BREAK}{width}"


def percent(value: float | None, signed: bool = True) -> str:
    """A percentage with its sign: `+48.2 %`, `−3.0 %`, `+1,310 %`; `–` if missing. It has no line break."""
    if value is None or math.isnan(value):
        return "–"
    digits = 0 if abs(value) >= 999.5 else 1
    text = f"{value:{'+' if signed else ''},.{digits}f}".replace("-", "−")
    return f"{text}{NO_BREAK}%"


def interval(low: float | None, high: float | None) -> str:
    """A change's interval, which need not be symmetric: `95 % +46.1 to +50.3 %`, or `no interval`.

    With `within noise: ` before it if it includes zero.
    """
    if low is None or high is None or _is_missing(low) or _is_missing(high):
        return "no interval"
    text = f"95{NO_BREAK}% {percent(low).removesuffix(NO_BREAK + '%')} to {percent(high)}"
    return f"within noise: {text}" if is_noise(low, high) else text


def is_noise(low: float | None, high: float | None) -> bool:
    """Whether the change's 95 % interval includes zero."""
    return low is not None and high is not None and low <= 0 <= high


def duration(seconds: float | None) -> str:
    """A time span: `0.4 s`, `75 s`, `12 min`, `3.2 h`; `–` if missing."""
    if seconds is None or math.isnan(seconds):
        return "–"
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 180:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def runs_text(count: int) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} run{'' if count == 1 else 's'}"


def metric_label(metric: str, per: str = "deployment") -> str:
    """A metric's name for readers: `total_tokens_per_s` is `Total tokens/s`, `ttft_ms` is `TTFT (ms)`.

    `per` is the basis; it is named if it is not the whole deployment. A statistic is last: `ttft_ms.p99`.
    """
    metric, _, statistic = metric.partition(".")
    metric = _NAMES.get(metric, metric)
    words = [word.upper() if word in _ACRONYMS else word for word in metric.replace("_per_s", "/s").split("_")]
    text = re.sub(r" (ms|s)$", r" (\1)", " ".join(words))
    more = (f" per {per}" if per != "deployment" else "") + (f" {statistic}" if statistic else "")
    return text[:1].upper() + text[1:] + more
