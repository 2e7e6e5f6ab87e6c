"""Completes commands where a page prints the options only: with the program and model of a complete one."""

from __future__ import annotations

import re

from servelab.recorded.draft.observed import Observed, Serving
from servelab.recorded.draft.serving import EngineName, engine_of_command, engines_named, model_of
from servelab.recorded.draft.workloads import slug
from servelab.study.recorded.commands import read_command

MODEL_NAME = re.compile(
    r"\b[\w.-]+/[A-Za-z][\w.]*-[\w.-]*\d[\w.-]*\b|\b[A-Za-z][\w.]*(?:-[\w.]+)*-\d[\w.]*[BbMm](?:-[\w.]+)*\b"
)
"""What looks like a model's name."""
_QUANTISED = re.compile(
    r"quanti[sz]|\b(?:optimi[sz]ed|awq|gptq|int[48]|w\d+a\d+|fp8(?!\W*(?:e\dm\d\W*)?kv))\b", re.IGNORECASE
)
"""What says that weights are quantised; an optimised configuration of a page has all that it chose."""


def complete(observed: Observed) -> None:
    """Turns each serving command that is options only into a whole one, by the engine that its place names.

    Where the page is about one model and its complete commands serve a quantised form of it, that form is served where
    label or headings say so.
    """
    whole = [each for each in observed.servings if each.printed is None]
    model = next((found for each in whole if (found := model_of(each.text))), None) or model_named(observed)
    plain = _model_of_setup(observed)
    has_form = model is not None and plain is not None and _is_form_of(model, plain)
    starts: dict[str, str] = {}
    for each in whole:
        its = engine_of_command(each.text)
        if its is not None:
            starts.setdefault(its.key, _start(each.text))
    usual = next((its for each in whole if (its := engine_of_command(each.text))), None) or _first_named(observed)
    for serving in observed.servings:
        if serving.printed is not None:
            engine = _engine_at(serving) or usual
            start = starts.get(engine.key) if engine else None
            if start is None and engine is not None and engine.start is not None:
                start = engine.start.format(model=model or "unknown")
            if start is not None and has_form and not _is_quantised(serving, observed):
                start = start.replace(str(model), str(plain))
            serving.text = f"{start or 'unknown'} {serving.printed}"
            serving.is_rewritten = True


def model_named(observed: Observed) -> str | None:
    """The first model that title, headings or text name; a name with its maker before one without."""
    texts = [observed.title or "", *(text for text, _ in observed.headings), *(text for text, _ in observed.lines[:80])]
    found = [match[0] for text in texts for match in MODEL_NAME.finditer(text) if "://" not in text]
    first = next(iter(found), None)
    return next((each for each in found if first and "/" in each and each.endswith(first)), first)


def _model_of_setup(observed: Observed) -> str | None:
    """The model that a page names under a heading `Model`."""
    lines = [text for text, spot in observed.lines if spot.path and slug(spot.path[-1]) == "model"]
    return next((match[0] for text in lines if (match := MODEL_NAME.search(text))), None)


def _is_form_of(model: str, plain: str) -> bool:
    """Whether a model's name is that of another with something behind it, such as `-FP8`."""
    whole, beginning = (name.rsplit("/", 1)[-1].lower() for name in (model, plain))
    return whole.startswith(f"{beginning}-")


def _is_quantised(serving: Serving, observed: Observed) -> bool:
    """By what stands above it, or above its results."""
    spots = [serving.spot, *(each.spot for each in observed.results if each.serving is serving)]
    texts = [text for spot in spots for text in (spot.label or "", spot.above, *spot.path[1:])]
    return any(map(_QUANTISED.search, texts))


def _start(command: str) -> str:
    """A command up to its first option that does not name the model."""
    parts = read_command(command)
    model = model_of(command)
    words = list(parts.words)
    if model is not None and model not in words:
        name = next((name for name, value in parts.options.items() if value == model), None)
        words += [name, model] if name else []
    return " ".join(words)


def _engine_at(serving: Serving) -> EngineName | None:
    for text in (serving.spot.label or "", *serving.spot.path[:0:-1]):
        named = engines_named(text)
        if len(named) == 1:
            return named[0]
    return None


def _first_named(observed: Observed) -> EngineName | None:
    for text, _ in [*observed.headings, *observed.lines]:
        named = engines_named(text)
        if named:
            return named[0]
    return None
