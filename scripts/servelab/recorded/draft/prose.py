"""Claims from lines of text: orders, figures with a unit, percentages of one candidate against another.

A number is claimed only if the line, or the figures themselves, say of what it is; every other one is listed.
"""

from __future__ import annotations

import difflib
import re

from servelab.metrics.definitions import METRICS
from servelab.recorded.draft.candidates import Candidate, Stage
from servelab.recorded.draft.claiming import BY_VALUE, DEFAULT_METRIC, Context, fits, metric_of
from servelab.recorded.draft.figures import Cell
from servelab.recorded.draft.observed import Spot
from servelab.recorded.draft.tables import is_of_performance
from servelab.recorded.draft.words import OTHER, THROUGHPUT, Number, falls, metric_in, numbers_in

_SENTENCE = re.compile(r"(?<=[.;!?。])\s+(?=[A-Z(`\"*])")
_MORE = re.compile(r"\s+(?:>{1,2}|&gt;|<{1,2}|&lt;)\s+")
_FROM_TO = re.compile(r"\bfrom\b.{0,40}$", re.IGNORECASE)
_TO = re.compile(r"^.{0,12}\bto\b", re.IGNORECASE)
_BY = re.compile(
    r"\bby\s+(?:enabling|using|setting|adding|turning on)\s+`?([\w -]{3,40}?)`?\s*(?:[.,;]|$)", re.IGNORECASE
)
_THAN = re.compile(
    r"\b(?:than|over|versus|vs\.?|against|compared (?:to|with)|relative to|from|above|below)\b", re.IGNORECASE
)
_BY_AMOUNT = re.compile(r"\bby\s*(?:about|around|roughly|~)?\s*$", re.IGNORECASE)
_FASTER = re.compile(r"\b(?:faster|higher|better|more|ahead|wins?)\b", re.IGNORECASE)
_FALLS = re.compile(
    r"\b(?:reduce\w*|reducing|reduction|lower\w*|decrease\w*|decreasing|drop\w*|fell|falls?|down|less)\b", re.IGNORECASE
)
_MOST_SENTENCE = 2000


def claim_line(text: str, spot: Spot, context: Context) -> None:
    """Adds the claims of a line of text."""
    if not any(each.isdigit() for each in text) and " > " not in text:
        return
    for sentence in _SENTENCE.split(text):
        if len(sentence) > _MOST_SENTENCE or not (_MORE.search(sentence) or any(map(str.isdigit, sentence))):
            continue
        if _claim_order(sentence, spot, context):
            continue
        found = context.names.candidates(sentence, spot)
        pair = list({id(each): each for each in found}.values())
        if len(pair) == 2:
            context.pair = (pair[0], pair[1], spot)
        elif len(pair) == 1 and _is_near(context.pair, spot) and context.pair and pair[0] in context.pair[:2]:
            other = context.pair[1] if pair[0] is context.pair[0] else context.pair[0]
            context.pair = (pair[0], other, spot)
        elif pair:
            context.pair = None
        _claim_numbers(sentence, spot, context)


def _is_near(pair: tuple[Candidate, Candidate, Spot] | None, spot: Spot) -> bool:
    """Whether a pair was named in this line or the one before."""
    return pair is not None and pair[2].file == spot.file and 0 <= spot.line - pair[2].line <= 1


def _claim_order(sentence: str, spot: Spot, context: Context) -> bool:
    parts = _MORE.split(sentence)
    if len(parts) < 2:
        return False
    named = [_last_named(parts[0], spot, context), *(_named(part, spot, context) for part in parts[1:])]
    if sum(each is None for each in named) == 1 and len(parts) > 1:  # a name may be misspelt
        missing = named.index(None)
        named[missing] = _nearly(parts[missing], [each for each in named if each], spot, context)
    sides = [each for each in named if each is not None]
    if len(sides) < len(parts) or len({id(each) for each in sides}) < len(sides):
        return False
    metric, statistic = metric_in(sentence) or (DEFAULT_METRIC, None)
    metric = str(metric_of(metric))
    workload = _workload(sentence, spot, sides, context)
    if not all(context.figures.has(each.reference, workload) for each in sides):
        context.leave(spot, f"`{sentence[:100]}`", f"not all have a log of `{workload}`")
        return True
    rises = {"<" in sign or "lt" in sign for sign in _MORE.findall(sentence)}
    best_first = sides[::-1] if rises == {True} and METRICS.get(metric).higher_is_better else sides
    keys = {"candidates": [each.reference for each in best_first], "workload": workload}
    if metric != DEFAULT_METRIC:
        keys["metric"] = metric
    if len(rises) == 1:
        context.add("order", spot, spot.where, keys)
    else:
        context.leave(spot, f"`{sentence[:100]}`", "it rises and falls: no order from best to worst")
    for part, side in zip(parts, sides, strict=True):
        for number in numbers_in(part):
            if not number.is_percent and (is_of_performance(number) or len(number.printed) > 3):
                cell = Cell(side.reference, workload, metric, statistic or "mean")
                context.figure(cell, number.printed, spot, spot.where, number.times, in_seconds=number.is_in_seconds)
    return True


def _named(text: str, spot: Spot, context: Context) -> Candidate | None:
    return context.names.candidate(text, spot)


def _nearly(text: str, others: list[Candidate], spot: Spot, context: Context) -> Candidate | None:
    """The candidate of the others' stage whose label the first word of a text nearly is."""
    word = re.match(r"\W*([\w.-]{4,40})", text.split(":")[-1])
    stage = next((each for each in context.names.stages if others and others[0] in each.candidates), None)
    own = {each.label.lower(): each for each in stage.candidates if each not in others} if stage else {}
    close = difflib.get_close_matches(word[1].lower(), own, n=1, cutoff=0.75) if word else []
    return own[close[0]] if close else None


def _last_named(text: str, spot: Spot, context: Context) -> Candidate | None:
    found = context.names.candidates(text, spot)
    return found[-1] if found else context.names.role(text)


def _workload(sentence: str, spot: Spot, sides: list[Candidate], context: Context) -> str:
    """The workload that the line names or the headings above it; else the one that decides."""
    for text in (sentence, *spot.path[:0:-1]):
        found = context.names.workload(text)
        if found is not None and all(context.figures.has(each.reference, found.name) for each in sides):
            return found.name
    return context.objective_on


def _claim_numbers(sentence: str, spot: Spot, context: Context) -> None:
    numbers = list(numbers_in(sentence))
    whole = metric_in(sentence)
    if _is_near(context.pair, spot) and context.pair and _claim_pair(sentence, numbers, context.pair, spot, context):
        return
    placed: list[tuple[Candidate, Number]] = []
    for position, number in enumerate(numbers):
        if number.is_percent or number.is_ratio:
            _claim_percent(sentence, number, spot, context)
        elif is_of_performance(number) or (whole and not number.unit and "." in number.printed):
            found = _claim_figure(sentence, numbers, position, spot, context)
            if found is not None:
                placed.append((found, number))
    because = _BY.search(sentence)
    if because and len(placed) == 2 and placed[0][0] is not placed[1][0] and _TO.match(placed[1][1].before):
        option = "--" + re.sub(r"[^a-z0-9]+", "-", because[1].lower()).strip("-")
        keys = {
            "candidates": [placed[1][0].reference, placed[0][0].reference],
            "workload": _workload(sentence, spot, [each for each, _ in placed], context),
            "because": option,
        }
        context.add("order", spot, spot.where, keys, "the option is written from the sentence")


def _claim_pair(
    sentence: str, numbers: list[Number], pair: tuple[Candidate, Candidate, Spot], spot: Spot, context: Context
) -> bool:
    """Claims of `X is faster by 5 tok/s (3 %)` and `TPOT = 5 ms vs 6 ms, reduced by 1 ms (17 %)`; False if neither."""
    by = next((each for each in numbers if _BY_AMOUNT.search(each.before) and is_of_performance(each)), None)
    if by is None:
        return False
    named = metric_in(sentence[: by.start], last=True) or metric_in(by.unit)
    if named is None:
        return False
    is_rate = by.unit.startswith("tok")
    metric = DEFAULT_METRIC if is_rate or named[0] == THROUGHPUT else named[0]
    if by.is_in_seconds and not metric.endswith("_ms"):  # `faster by 0.1 s` is a latency
        metric = "e2el_ms"
    workload = _workload(sentence, spot, list(pair[:2]), context)
    ahead = [each for each in numbers if each.end <= by.start and is_of_performance(each)]
    sides = pair[:2]
    if len(ahead) == 2 and not context.names.candidates(sentence, spot):
        for side, number in zip(sides, ahead, strict=True):
            cell = Cell(side.reference, workload, metric, named[1] or "mean")
            context.figure(cell, number.printed, spot, spot.where, in_seconds=number.is_in_seconds)
    elif ahead:
        for position, number in enumerate(numbers):
            if number in ahead:
                _claim_figure(sentence, numbers, position, spot, context)
    elif is_rate and _FASTER.search(by.before):
        keys = {"candidates": [each.reference for each in sides], "workload": workload}
        context.add("order", spot, spot.where, keys)
    cell = Cell("", workload, metric, named[1] or "mean")
    falls_by = _FALLS.search(by.before) is not None or (
        metric.endswith("_ms") and _FASTER.search(by.before) is not None
    )
    sign = "-" if falls_by and not by.is_signed else ""
    printed = sign + by.printed
    context.difference(sides[0], sides[1], cell, printed, spot, spot.where, in_seconds=by.is_in_seconds)
    for number in numbers[numbers.index(by) + 1 :]:
        if number.is_percent or number.is_ratio:
            printed = number.printed if number.is_signed or number.is_ratio else sign + number.printed
            one, other = (sides[1], sides[0]) if number.is_worse else sides
            context.change(one, other, cell, printed, spot, spot.where, is_ratio=number.is_ratio)
    return True


def _claim_figure(
    sentence: str, numbers: list[Number], position: int, spot: Spot, context: Context
) -> Candidate | None:
    number = numbers[position]
    what = f"`{number.printed} {number.unit}`".replace(" `", "`") + f" in `{sentence[:100]}`"
    if number.unit in ("k", "m", "x", "×") or number.unit.endswith("b"):
        return None
    before = sentence[: number.start]
    named = metric_in(number.before, last=True) or metric_in(number.unit) or metric_in(before, last=True)
    named = named or metric_in(sentence)
    if number.is_in_seconds and (named is None or not named[0].endswith("_ms")):
        return None
    if number.unit.startswith("tok") and (named is None or named[0].endswith("_ms")):
        named = (THROUGHPUT, None)
    if named is None:
        context.leave(spot, what, "no metric is named")
        return None
    metric, statistic = named
    hits = [each for each in context.figures.like(number.in_metric) if fits(each, metric, statistic or "mean")]
    candidate = _subject(sentence, numbers, position, spot, context)
    candidates = {each.candidate for each in hits}
    everyone = {each.reference: each for stage in context.names.stages for each in stage.candidates}
    if len(candidates) == 1 and candidate is not None and _begins_pair(sentence, numbers, position):
        candidate = everyone[next(iter(candidates))]
    if candidate is None and len(candidates) > 1:  # several logs have the figure: one of them may be named
        candidates &= {each.reference for each in context.names.candidates(sentence, spot)}
    if candidate is None and len(candidates) == 1:
        candidate = everyone[next(iter(candidates))]
    if candidate is None:
        context.leave(spot, what, "the line does not say whose figure it is")
        return None
    own = [each for each in hits if each.candidate == candidate.reference]
    workload = own[0].workload if own else _workload(sentence, spot, [candidate], context)
    cell = own[0] if own else Cell(candidate.reference, workload, str(metric_of(metric)), statistic or "mean")
    guess = None if own else "the log has another figure; see whose figure it is"
    seconds = number.is_in_seconds
    if not context.figure(cell, number.printed, spot, spot.where, number.times, guess, in_seconds=seconds):
        context.leave(spot, what, f"`{cell.candidate}` has no log of `{cell.workload}`")
        return None
    return candidate


def _begins_pair(sentence: str, numbers: list[Number], position: int) -> bool:
    """Whether a number is the first of two in brackets, as in `A is faster than B (5 vs 4)`: it need not be of B."""
    number = numbers[position]
    closing = sentence.find(")", number.end)
    return number.before.rstrip().endswith("(") and any(each.end <= closing for each in numbers[position + 1 :])


def _subject(sentence: str, numbers: list[Number], position: int, spot: Spot, context: Context) -> Candidate | None:
    """The candidate that a figure is of: the last one named before it, or the sides of `from … to …`."""
    number = numbers[position]
    since = max((each.end for each in numbers[:position] if is_of_performance(each)), default=0)
    for text in (number.before, sentence[since : number.start]):  # the second where a name has numbers in it
        if named := context.names.candidates(text, spot):
            return named[-1]
    stage = _stage_of(spot, context)
    if _FROM_TO.search(number.before):
        return _before_stage(stage, context)
    if _TO.match(number.before) and position and _FROM_TO.search(numbers[position - 1].before):
        own = [each for each in stage.candidates if each.results] if stage else []
        return own[0] if len(own) == 1 else None
    following = sentence[number.end : numbers[position + 1].start if position + 1 < len(numbers) else len(sentence)]
    after = re.match(r"\s*(?:\(?(?:for|with|by|on|in|using)\s+)([^,.;)]{2,60})", following)
    if after and (found := context.names.candidates(after[1], spot)):
        return found[0]
    return context.names.role(number.before)


def _stage_of(spot: Spot, context: Context) -> Stage | None:
    return next((stage for stage in context.names.stages if stage.section in spot.sections), None)


def _before_stage(stage: Stage | None, context: Context) -> Candidate | None:
    """What a stage starts from: the best candidate of the one before."""
    stages = context.names.stages
    position = stages.index(stage) if stage in stages else 0
    if position == 0:
        return context.names.baseline
    return context.best(stages[position - 1], Cell("", context.objective_on, DEFAULT_METRIC)) or context.names.baseline


def _claim_percent(sentence: str, number: Number, spot: Spot, context: Context) -> None:
    is_ratio = number.is_ratio
    what = f"`{number.printed}{'x' if is_ratio else '%'}` in `{sentence[:100]}`"
    near = sentence[max(0, number.start - 80) : number.end + 60]
    metric = metric_in(number.before, last=True) or metric_in(near) or metric_in(sentence)
    sides = context.names.candidates(sentence, spot)
    if metric is not None and metric[0] == "success_rate":
        subject = sides[0] if sides else None
        workload = _workload(sentence, spot, [subject] if subject else [], context)
        if subject is not None and context.figures.has(subject.reference, workload):
            keys = {"candidate": subject.reference, "workload": workload, "printed": number.printed.lstrip("+")}
            context.add("success_rate", spot, spot.where, keys, "the first candidate that the line names")
            return
        context.leave(spot, what, "the line does not say whose figure it is")
        return
    if OTHER.search(near) and (metric is None or OTHER.search(sentence[number.end : number.end + 30])):
        context.leave(spot, what, "a percentage of something that no log has")
        return
    cell = Cell(
        "",
        context.objective_on,
        str(metric_of(metric[0] if metric else THROUGHPUT)),
        (metric or ("", None))[1] or "mean",
    )
    printed = number.printed
    if not number.is_signed and falls(near) and not is_ratio:
        printed = f"-{printed}"
    candidate, against = _sides(sentence, number, spot, context)
    if number.is_worse:
        candidate, against = against, candidate
    workload = _workload(sentence, spot, [each for each in (candidate, against) if each], context)
    cell = Cell("", workload, cell.metric, cell.statistic)
    if candidate is not None and against is not None and (metric is not None or number.is_signed):
        names = (candidate.reference, against.reference)
        is_right = context.figures.basis_of(printed, *names, cell, is_ratio=is_ratio) is not None
        guess = None if is_right else "the logs give another percentage; see what is compared with what"
        if context.change(candidate, against, cell, printed, spot, spot.where, is_ratio=is_ratio, guess=guess):
            return
    pair = _pair_by_value(printed, candidate, spot, cell, context, is_ratio=is_ratio)
    if pair is not None:
        context.change(*pair, cell, printed, spot, spot.where, is_ratio=is_ratio, guess=BY_VALUE)
    else:
        context.leave(spot, what, "the line does not say what is compared with what")


def _sides(sentence: str, number: Number, spot: Spot, context: Context) -> tuple[Candidate | None, Candidate | None]:
    """What changed and against what: what is named before the number, and behind `over`, `than`, `compared to`."""
    than = next((each for each in _THAN.finditer(sentence) if each.start() >= number.start), None)
    than = than or next(iter(_THAN.finditer(sentence)), None)
    if than is None:
        found = context.names.candidates(sentence[: number.start], spot)
        return (found[-1] if found else None), None
    behind = context.names.candidates(sentence[than.end() :], spot)
    against = behind[0] if behind else context.names.role(sentence[than.end() :])
    ahead = [each for each in context.names.candidates(sentence[: than.start()], spot) if each is not against]
    candidate = ahead[-1] if ahead else None
    if candidate is None:
        role = context.names.role(sentence[: than.start()])
        candidate = role if role is not against else None
    return candidate, against


def _pair_by_value(
    printed: str, candidate: Candidate | None, spot: Spot, cell: Cell, context: Context, *, is_ratio: bool
) -> tuple[Candidate, Candidate] | None:
    """The pair of the section, or of the recommended and the baseline, whose change is the printed one."""
    stage, names = _stage_of(spot, context), context.names
    own = [candidate] if candidate else list(stage.candidates) if stage else []
    if not own and names.tuned:
        own = [names.tuned]
    before = _before_stage(stage, context)
    against = [each for each in (before, names.baseline, *(stage.candidates if stage else [])) if each is not None]
    if len(printed.lstrip("+-").replace(".", "")) < 2:
        return None
    return context.pair_of(printed, own, against, cell, is_ratio=is_ratio)
