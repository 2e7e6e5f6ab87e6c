"""Guesses what a page says of model, hardware and engines' versions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from servelab.recorded.draft.candidates import UNKNOWN_COMMAND, Candidate
from servelab.recorded.draft.fragments import model_named
from servelab.recorded.draft.observed import Observed, Spot
from servelab.recorded.draft.serving import ENGINES, accelerators_of, model_of
from servelab.recorded.draft.workloads import slug
from servelab.study.recorded.commands import read_command

_DEVICE = re.compile(
    r"\b(?P<maker>nvidia|amd|intel|huawei|ascend)?\s*(?P<name>GB300|GB200|B300|B200|H200|H100|H800|H20|A100|A800|A10G?|L40S?|L4"
    r"|V100|T4|RTX(?:\s+PRO)?\s*\d{4}(?:\s*Ti)?|MI3\d\dX?|MI2\d\dX?|Gaudi\s?\d|910[BC]\d?|310P|TPU\s?v\d\w?)"
    r"(?P<form>\s+(?:SXM\d?|PCIe|NVL))?\b",
    re.IGNORECASE,
)
_COUNT = re.compile(
    r"(?:\b(?P<number>\d{1,3}|one|a single|single|two|four|eight|sixteen)\s*(?:[x×*]\s*)?"
    r"|(?P<times>\d{1,3})\s*[x×*]\s*)"
    r"(?:(?:nvidia|amd|huawei|ascend|atlas)\s+)*(?:GB300|GB200|B300|B200|H200|H100|H800|H20|A100|A800|L40S?|L4|V100|RTX"
    r"|MI\d\d\dX?|910[BC])",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:H200|H100|H800|H20|A100|A800|B200|L40S?|MI\d\d\dX?|910[BC]\d?)\w*(?:\s*\w+)?\s*[x×*]\s*(\d{1,3})\b"
)
_WORDS = {"one": 1, "a single": 1, "single": 1, "two": 2, "four": 4, "eight": 8, "sixteen": 16}
_VERSION = re.compile(
    r"v?(\d+(?:\.(?:\d+|rc\d+|post\d+|dev\d+|[a-z]+\d+))+(?:[-.+]?(?:rc|post|dev|alpha|beta)\d+)?(?:\+[\w.]+)?)"
)


@dataclass
class Facts:
    """What every study says of itself."""

    model: str = "unknown"
    names: list[str] = field(default_factory=list)
    variants: dict[str, str] = field(default_factory=dict)
    accelerator: str = "unknown"
    device: str = "nvidia"
    per_node: int = 1
    said_accelerators: tuple[int, Spot] | None = None
    """How many the page says there were at most, and where."""
    versions: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    guesses: dict[str, str] = field(default_factory=dict)


def guess_facts(observed: Observed, candidates: list[Candidate]) -> Facts:
    """Model, hardware and versions."""
    facts = Facts()
    _model(facts, observed, candidates)
    _hardware(facts, observed, candidates)
    _engines(facts, observed, candidates)
    return facts


def variant_of(facts: Facts, command: str) -> tuple[str, str | None]:
    """The weights that a command serves, `base` or a variant, and why that is a guess."""
    model = model_of(command)
    if model is None:
        return "base", None if command == UNKNOWN_COMMAND else "the command names no model"
    if model == facts.model or model in facts.names:
        return "base", None
    variant = next((key for key, name in facts.variants.items() if name == model), None)
    return (variant, None) if variant else ("base", f"the command serves {model}, which is not this model")


def _last(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1].lower()


def _model(facts: Facts, observed: Observed, candidates: list[Candidate]) -> None:
    served = [model for each in candidates if (model := model_of(each.command))]
    for serving in observed.servings:
        served += [model for model in [model_of(serving.text)] if model and model not in served]
    if not served:
        facts.model = model_named(observed) or "unknown"
        facts.guesses["model"] = "no serving command names it"
        return
    title = slug(observed.title or "")

    def rank(model: str) -> tuple[int, int, int]:
        relatives = sum(_is_variant(other, model) for other in set(served))
        return (slug(_last(model)) in title, relatives, -served.index(model))

    facts.model = max(dict.fromkeys(served), key=rank)
    facts.guesses["model"] = "what the commands serve"
    for model in dict.fromkeys(served):
        if model == facts.model:
            continue
        if _last(model) == _last(facts.model):
            facts.names.append(model)
        elif _is_variant(model, facts.model):
            suffix = slug(_last(model)[len(_last(facts.model)) :]) or "variant"
            while suffix in facts.variants:
                suffix += "-2"
            facts.variants[suffix] = model


def _is_variant(model: str, base: str) -> bool:
    return _last(model).startswith((f"{_last(base)}-", f"{_last(base)}_"))


def _hardware(facts: Facts, observed: Observed, candidates: list[Candidate]) -> None:
    texts = [*observed.headings, *observed.lines]
    texts += [(" ".join(cells), spot) for table, _, spot in observed.tables for _, cells in table.rows[:40]]
    named = [(match, text) for text, _ in texts for match in _DEVICE.finditer(text)]
    counts = Counter(slug(match["name"]) for match, _ in named)
    if named:
        most = counts.most_common(1)[0][0]
        matches = [match for match, _ in named if slug(match["name"]) == most]
        longest = max(matches, key=lambda match: (bool(match["form"]), bool(match["maker"]), -matches.index(match)))
        facts.accelerator = " ".join(longest[0].split())
    facts.guesses["accelerator"] = "what the page names most" if named else "the page names none"
    lower = facts.accelerator.lower()
    if re.search(r"910|310p|ascend", lower):
        facts.device = "ascend"
    elif re.search(r"amd|mi[23]\d\d", lower):
        facts.device = "amd"
    used = [count for each in candidates if (count := accelerators_of(each.command))]
    said = _said(texts)
    facts.said_accelerators = said
    facts.per_node = max([*used, said[0] if said else 1, 1])
    facts.guesses["per_node"] = "the most that a command or the page uses"


def _said(texts: list[tuple[str, Spot]]) -> tuple[int, Spot] | None:
    """The most accelerators that a line about hardware says."""
    found: list[tuple[int, Spot]] = []
    for text, spot in texts:
        for match in [*_COUNT.finditer(text), *_AFTER.finditer(text)]:
            words = [each for each in match.groups() if each]
            if words:
                count = _WORDS.get(words[0].lower(), 0) or (int(words[0]) if words[0].isdigit() else 0)
                if 0 < count <= 64:
                    found.append((count, spot))
    return max(found, key=lambda each: each[0], default=None)


def _engines(facts: Facts, observed: Observed, candidates: list[Candidate]) -> None:
    texts = [text for text, _ in [*observed.lines, *observed.headings]]
    texts += [" ".join(cells) for table, _, _ in observed.tables for _, cells in table.rows]
    texts += [serving.text for serving in observed.servings]
    for key in dict.fromkeys(each.engine for each in candidates):
        engine = next((each for each in ENGINES if each.key == key), None)
        version = next((found for text in texts if engine and (found := _version(engine.words, text))), None)
        facts.versions[key] = version or "unknown"
        facts.guesses[f"version {key}"] = "what stands behind its name" if version else "the page gives none"
        programs = Counter(
            " ".join(read_command(each.command).program)
            for each in candidates
            if each.engine == key and each.command != UNKNOWN_COMMAND and "engine" not in each.guesses
        )
        if len(programs) == 1:
            facts.programs[key] = next(iter(programs))


def _version(words: re.Pattern[str], text: str) -> str | None:
    for match in words.finditer(text):
        rest = text[match.end() : match.end() + 60]
        found = re.match(
            r"[\w/-]{0,20}\s*(?:version|engine|release|image|==|=|:|\||\(|@)*\s*:?\s*", rest, re.IGNORECASE
        )
        version = _VERSION.match(rest[found.end() :]) if found else None
        if version:
            return version[1]
    return None
