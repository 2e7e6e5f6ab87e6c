"""Guesses candidates and stages: a candidate per serving command, a stage per heading under which new ones appear."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from servelab.recorded.draft.observed import Failure, Observed, Result, Serving, Spot, Unplaced
from servelab.recorded.draft.serving import engine_of_command, engines_named, with_options
from servelab.recorded.draft.workloads import Workload, names_workload, slug
from servelab.recorded.logs import figures_of
from servelab.study.recorded.commands import changes, read_command
from servelab.study.study import COMPARISON

UNKNOWN_COMMAND = "unknown"
"""Stands where a page prints no serving command; a study needs one."""
_ROUND = re.compile(r"\b(?:run|round|repeat\w*|trial|again|second|third|first|warm\w*|attempt|pass)\b", re.IGNORECASE)
_NUMBER = re.compile(r"^(?:step\s*)?[\d.]+[.):]?\s+", re.IGNORECASE)
_VALUE = re.compile(
    r"\b(?:default|baseline|original|on|off|enabled|disabled|[bf]p?\d+|int\d|awq|gptq|none|eager)\b", re.IGNORECASE
)
_GENERIC = re.compile(
    r"\b(?:experiments?|results?|benchmarks?|evaluations?|tuning|optimi[sz]ations?|tests?|steps?)\b", re.IGNORECASE
)
_COMMANDS = re.compile(r"\b(?:commands?|cmd|launch\w*|serv\w+|start\w*|outputs?|logs?)\b", re.IGNORECASE)
"""Words of a label that say what kind of text follows, not whose it is."""
_IN_ENGINE = re.compile(r"\s+(?:in|with|on|for|using|of)\s+\S+(?:\s+\S+)?$", re.IGNORECASE)

Key = tuple[object, ...]


@dataclass
class Candidate:
    """A configuration that the page says was tried."""

    command: str
    spot: Spot
    """Where it is first tried."""
    name: str = ""
    label: str = ""
    stage: str = ""
    engine: str = "unknown"
    printed: str | None = None
    results: dict[str, list[Result]] = field(default_factory=dict)
    """Workload → results."""
    commands: dict[str, str] = field(default_factory=dict)
    """Workload → the command of its results, where it is another one."""
    failure: Failure | None = None
    labels: list[str] = field(default_factory=list)
    """What the page calls it."""
    headings: list[str] = field(default_factory=list)
    """Headings under which its results stand, where they name a candidate."""
    guesses: dict[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """Its name in claims."""
        return f"{self.stage}/{self.name}"


@dataclass
class Stage:
    """A question."""

    name: str
    title: str
    section: int
    candidates: list[Candidate]


@dataclass
class Candidates:
    """All that a page tried."""

    stages: list[Stage]
    objective_on: str
    unplaced: list[Unplaced]

    @property
    def all(self) -> list[Candidate]:
        """Candidates in order."""
        return [each for stage in self.stages for each in stage.candidates]


def guess_candidates(observed: Observed, workloads: list[Workload]) -> Candidates:
    """Candidates and stages. One that was not measured on the workload that decides is drafted as not run on it."""
    unplaced: list[Unplaced] = []
    workload_of = {id(result): workload.name for workload in workloads for result in workload.results}
    found: dict[Key, Candidate] = {}
    for result in observed.results:
        candidate = _candidate_of(result, found, observed)
        candidate.results.setdefault(workload_of[id(result)], []).append(result)
        _note_labels(candidate, result)
    found = _tried_again(_split(found))
    _fail(observed, found, unplaced)
    measured = [each for each in found.values() if each.results]
    objective_on = _deciding(measured, workloads)
    kept = _one_by_label(list(found.values()), objective_on)
    run = {_key(each.command) for each in found.values()}
    for serving in observed.servings:
        if _key(serving.text) not in run:
            unplaced.append(Unplaced(serving.spot, f"command `{serving.text}`", "no result stands under it"))
    return Candidates(_stages(kept), objective_on, unplaced)


def _key(command: str) -> Key:
    parts = read_command(command)
    return (tuple(sorted(parts.variables.items())), parts.words, tuple(sorted(parts.options.items(), key=str)))


def _candidate_of(result: Result, found: dict[Key, Candidate], observed: Observed) -> Candidate:
    serving, printed = result.serving, None
    guesses: dict[str, str] = {}
    if serving is None:
        named = _named_serving(result, observed)
        if named is not None:
            serving = named
            guesses["command"] = "the command that has this label elsewhere"
    command = serving.text if serving else UNKNOWN_COMMAND
    if serving and serving.printed is not None:
        printed = serving.printed
        guesses["command"] = "the page prints the options; program and model are those of a complete command, or usual"
    elif serving and serving.is_rewritten:
        guesses["command"] = "variables before it were put in front of it, or what runs after it was left out"
    fragment = result.fragment
    if serving and fragment and (changed := with_options(command, fragment)) and _key(changed) != _key(command):
        command, printed = changed, fragment
        guesses["command"] = "the command above with the options above the result"
    key: Key = _key(command)
    if serving is None:
        key = (UNKNOWN_COMMAND, *_unknown_name(result))
        guesses["command"] = "no serving command found; write it"
    if key not in found:
        found[key] = Candidate(command, result.spot, printed=printed, guesses=guesses)
    return found[key]


def _unknown_name(result: Result) -> tuple[str, ...]:
    """What distinguishes a candidate without a command: its label, or the headings above."""
    if result.spot.label:
        return (result.spot.path[-1] if result.spot.path else "", result.spot.label)
    return result.spot.path or (result.spot.file,)


def _named_serving(result: Result, observed: Observed) -> Serving | None:
    """The only command under the label, or heading, that the result has."""
    texts = {slug(each) for each in (*result.comments, result.spot.label or "", *result.spot.path[-1:]) if slug(each)}
    named = [
        each
        for each in observed.servings
        if texts & {slug(each.spot.label or "") or "-", slug(each.spot.path[-1] if each.spot.path else "") or "-"}
    ]
    commands = {_key(each.text) for each in named}
    if len(commands) == 1:
        return named[0]
    only = {_key(each.text) for each in observed.servings}
    return observed.servings[0] if len(only) == 1 else None


def _note_labels(candidate: Candidate, result: Result) -> None:
    first = result.serving.spot.label if result.serving else None
    for label in (first, *result.comments, result.spot.label):
        if label and label not in candidate.labels and not names_workload(label):
            candidate.labels.append(label)
    if len(result.spot.path) > 1 and _is_label(result.spot.path) and not names_workload(result.spot.path[-1]):
        candidate.headings.append(result.spot.path[-1])


def _split(found: dict[Key, Candidate]) -> dict[Key, Candidate]:
    """Candidates whose results on one workload have different labels, printed under one command, are several."""
    split: dict[Key, Candidate] = {}
    for key, candidate in found.items():
        several = {workload: each for workload, each in candidate.results.items() if _is_mixed(each)}
        if not several:
            split[key] = candidate
            continue
        for workload, results in candidate.results.items():
            for result in results:
                text = _distinction(result) if workload in several else ""
                own = (*key, slug(text)) if text else key
                if own not in split:
                    guesses = {**candidate.guesses, "command": "one command is printed for several results"}
                    split[own] = Candidate(candidate.command, result.spot, printed=candidate.printed, guesses=guesses)
                split[own].results.setdefault(workload, []).append(result)
                _note_labels(split[own], result)
    return split


def _tried_again(found: dict[Key, Candidate]) -> dict[Key, Candidate]:
    """Candidates that the page tries once more beside those of a later question are candidates of that one too."""
    split: dict[Key, Candidate] = {}
    for key, candidate in found.items():
        split[key] = candidate
        for workload, (first, *more) in list(candidate.results.items()):
            for result in more:
                if (question := _other_question(first, result, found)) is None:
                    continue
                candidate.results[workload].remove(result)
                own = (*key, question)
                if own not in split:
                    guesses = dict(candidate.guesses)
                    split[own] = Candidate(candidate.command, result.spot, printed=candidate.printed, guesses=guesses)
                split[own].results.setdefault(workload, []).append(result)
                _note_labels(split[own], result)
    return split


def _other_question(first: Result, result: Result, found: dict[Key, Candidate]) -> int | None:
    """The heading of a question that a result belongs to, where `first`, of the same command, belongs to another.

    The command is printed again above the result, under a heading that names a candidate beside others'.
    """
    sections = result.spot.sections
    if len(sections) < 2 or sections[-2] in first.spot.sections:
        return None
    is_printed_again = result.serving is not None and result.serving.spot.section == result.spot.section
    if not is_printed_again or not _is_label(result.spot.path) or names_workload(result.spot.path[-1]):
        return None
    results = [other for candidate in found.values() for each in candidate.results.values() for other in each]
    beside = {other.spot.section for other in results if sections[-2] in other.spot.sections[:-1]}
    return sections[-2] if len(beside) > 1 else None


def _is_mixed(results: list[Result]) -> bool:
    texts = {_distinction(each) for each in results}
    figures = {figures_of(each.block) for each in results}
    return len(texts) > 1 and len(figures) > 1 and "" not in texts and not any(map(_ROUND.search, texts))


def _distinction(result: Result) -> str:
    return " ".join(result.comments) or result.spot.label or ""


def _fail(observed: Observed, found: dict[Key, Candidate], unplaced: list[Unplaced]) -> None:
    for failure in observed.failures:
        assert failure.serving is not None
        command = failure.serving.text
        guesses: dict[str, str] = {}
        if failure.fragment and (changed := with_options(command, failure.fragment)):
            if _key(changed) != _key(command):
                guesses["command"] = "the command above with the options above the failure"
            command = changed
        key = _key(command)
        if key in found:
            why = "the same command also has a result"
            unplaced.append(Unplaced(failure.spot, f"failure `{failure.message}`", why))
            continue
        guesses["outcome"] = "the page prints this line instead of a result"
        found[key] = Candidate(command, failure.spot, printed=failure.fragment, failure=failure, guesses=guesses)
        found[key].labels += [each for each in (failure.serving.spot.label, failure.spot.label) if each]


def _one_by_label(candidates: list[Candidate], objective_on: str) -> list[Candidate]:
    """Candidates, where one that was not measured on the workload that decides joins that of its name.

    It has the name of one candidate that was, of the same engine, and none of that one's workloads.
    """
    whole = [each for each in candidates if objective_on in each.results]
    kept = []
    for candidate in candidates:
        others = [each for each in whole if not candidate.results.keys() & each.results.keys()]
        named = [each for each in others if _is_named_alike(candidate, each)]
        if candidate.results and objective_on not in candidate.results and len(named) == 1:
            one = named[0]
            one.results |= candidate.results
            one.commands |= dict.fromkeys(candidate.results, candidate.command)
            one.guesses["commands"] = "results under the same name, with another command"
        else:
            kept.append(candidate)
    return kept


def _is_named_alike(one: Candidate, other: Candidate) -> bool:
    if UNKNOWN_COMMAND in (one.command, other.command):
        return False
    if engine_of_command(one.command) != engine_of_command(other.command):
        return False
    own, others = ({_who(text) for text in (*each.labels, *each.headings)} - {""} for each in (one, other))
    return bool(own & others)


def _who(label: str) -> str:
    """What a label says besides the words that stand above any command or result; empty for nothing."""
    return slug(_COMMANDS.sub(" ", _GENERIC.sub(" ", label)))


def _deciding(measured: list[Candidate], workloads: list[Workload]) -> str:
    counts = [(sum(workload.name in each.results for each in measured), workload.name) for workload in workloads]
    return max(counts, key=lambda each: each[0])[1] if counts else "requests"


def _stages(candidates: list[Candidate]) -> list[Stage]:
    candidates = sorted(candidates, key=lambda each: (each.spot.sections or (0,))[-1])
    sections: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        sections.setdefault(_stage_section(candidate, candidates), []).append(candidate)
    stages: list[Stage] = []
    for section, own in sections.items():
        spot = own[0].spot
        title = next((text for number, text in zip(spot.sections, spot.path, strict=True) if number == section), "")
        name = _unique(_stage_name(title), [COMPARISON, *(each.name for each in stages)])
        stages.append(Stage(name, title or "All candidates", section, own))
        for candidate in own:
            candidate.stage = name
    for stage in stages:
        _name_all(stage, candidates)
    return stages


def _stage_section(candidate: Candidate, candidates: list[Candidate]) -> int:
    """The heading that asks: the innermost, or the one above where the innermost only names the candidate."""
    spot = candidate.spot
    if len(spot.sections) < 2:
        return spot.section
    inside = [each for each in candidates if each.spot.section == spot.section]
    siblings = {each.spot.section for each in candidates if spot.sections[-2] in each.spot.sections[:-1]}
    if len(inside) == 1 and len(siblings) > 1 and _is_label(spot.path):
        candidate.labels.append(spot.path[-1])
        candidate.guesses.setdefault("label", "the heading above it")
        return spot.sections[-2]
    return spot.section


def _is_label(path: tuple[str, ...]) -> bool:
    """Whether the innermost heading names a candidate, and does not ask a question of its own."""
    text = path[-1]
    if _NUMBER.match(text) or len(text.split()) > 8:
        return False
    if re.search(r"\d", text) or _VALUE.search(text):
        return True
    named = engines_named(text)
    return bool(named) or (len(path) > 2 and _GENERIC.search(path[-2]) is None)


def _stage_name(title: str) -> str:
    return slug(_IN_ENGINE.sub("", _NUMBER.sub("", title))) or "stage"


def _name_all(stage: Stage, candidates: list[Candidate]) -> None:
    names: list[str] = []
    titles: list[str] = []
    named_engines = engines_named(stage.title)
    for candidate in stage.candidates:
        engine = engine_of_command(candidate.command)
        labelled = [each for label in candidate.labels for each in engines_named(label)]
        if len(named_engines) == 1 and engine is not None and named_engines[0] != engine and not labelled:
            engine = named_engines[0]
            candidate.guesses["engine"] = "the heading names it; the command begins as another's"
        if engine is None and labelled:
            engine = labelled[0]
            candidate.guesses["engine"] = "from its label"
        if engine is None:
            candidate.guesses["engine"] = "neither command nor label names an engine that is known"
        candidate.engine = engine.key if engine else "unknown"
        label = _label(candidate, stage, candidates)
        candidate.name = _unique(slug(label) or "candidate", names)
        candidate.label = _unique(label, titles)
        names.append(candidate.name)
        titles.append(candidate.label)


def _label(candidate: Candidate, stage: Stage, candidates: list[Candidate]) -> str:
    if candidate.printed and len(read_command(f"x {candidate.printed}").options) == 1:
        return _values(candidate.printed) or candidate.printed
    usable = [each for each in candidate.labels if slug(each)]
    shared = {each for other in stage.candidates if other is not candidate for each in other.labels}
    own = [each for each in usable if each not in shared]
    if own:
        candidate.guesses.setdefault("label", "the text above it")
        return _values(own[0]) or own[0]
    candidate.guesses["label"] = "what its command changes"
    before = next((each for each in candidates if each is not candidate and each.command != UNKNOWN_COMMAND), None)
    if before is not None and candidate.command != UNKNOWN_COMMAND:
        changed = changes(before.command, candidate.command)
        words = [
            f"{name.lstrip('-')} {value if isinstance(value, str) else ''}".strip()
            for key in ("environment_variables", "arguments")
            for name, value in dict(changed.get(key, {})).items()  # type: ignore[call-overload]
            if value is not False
        ]
        if words:
            return " ".join(words)[:60]
    return (candidate.spot.path[-1] if candidate.spot.path else "") or candidate.engine


def _values(fragment: str) -> str:
    """What is set in options: their values, or the names of flags."""
    try:
        parts = read_command(f"x {fragment}")
    except ValueError:
        return ""
    options = parts.options if len(parts.words) == 1 else {}
    return " ".join(value or name.lstrip("-") for name, value in options.items())


def _unique(text: str, taken: list[str]) -> str:
    unique, number = text, 2
    while unique in taken:
        unique, number = f"{text}-{number}", number + 1
    return unique
