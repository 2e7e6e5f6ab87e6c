"""What words of a page mean: metrics, numbers, candidates, stages and workloads that a text names."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from servelab.recorded.draft.candidates import Candidate, Stage
from servelab.recorded.draft.observed import Spot
from servelab.recorded.draft.serving import ENGINES
from servelab.recorded.draft.workloads import Workload, rate_said, slug
from servelab.study.recorded.commands import read_command

THROUGHPUT = "throughput"
"""A rate of tokens; the page does not say which."""
_METRICS = (
    (
        "total_tokens_per_s",
        r"total\s+(?:token\s+)?(?:throughput|tps|tok(?:en)?s?\s*/\s*s(?:ec)?)|total\s+tokens?\s+per\s+second",
    ),
    (
        "output_tokens_per_s",
        r"(?:output|generation|generated|decode|decoding|gen)\s+(?:token\s+)?(?:throughput|tps|tok(?:en)?s?\s*/\s*s(?:ec)?|speed"
        r"|rate|tokens?\s+per\s+second)",
    ),
    ("input_tokens_per_s", r"(?:input|prefill|prompt)\s+(?:token\s+)?(?:throughput|tps|tok(?:en)?s?\s*/\s*s(?:ec)?)"),
    (
        "requests_per_s",
        r"requests?\s+(?:throughput|rate)|(?:req|request)s?\s*(?:/\s*(?:s|sec|second)|per\s+(?:sec|second))|\bqps\b|\brps\b",
    ),
    ("ttft_ms", r"\bttft\b|time[- ]to[- ]first[- ]token|first[- ]token\s+latency"),
    ("tpot_ms", r"\btpot\b|time[- ]per[- ]output[- ]token"),
    ("itl_ms", r"\bitl\b|inter[- ]token\s+latency"),
    (
        "e2el_ms",
        r"\be2el?\b(?:\s+latency)?|end[- ]to[- ]end\s+latency|request\s+latency"
        r"|\b(?:mean|average|avg|median|p\d\d)\s+latency",
    ),
    (
        THROUGHPUT,
        r"throughput|\btps\b|tok(?:en)?s?\s*/\s*(?:s|sec|second)\b|tokens?\s+per\s+(?:sec|second)|\bfaster\b|\bslower\b"
        r"|\bspeed-?up\b",
    ),
    ("success_rate", r"success(?:ful)?(?:\s+request)?\s*(?:rate)?"),
)
_METRIC = re.compile("|".join(f"(?P<{name}>{words})" for name, words in _METRICS), re.IGNORECASE)
_STATISTIC = re.compile(
    r"(?P<mean>\bmean\b|\bavg\b|\baverage\b)|(?P<median>\bmedian\b|\bp50\b)|(?P<p90>\bp90\b)|(?P<p95>\bp95\b)|(?P<p99>\bp99\b)",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.,/#@:=-])(?P<sign>[+\-−–↑↓▲▼]\s?|~\s?|≈\s?)?(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"(?P<percent>\s?[%％])?(?:\s?[x×](?P<times>[2-9]|\d\d)(?![\w.]))?"
    r"(?P<unit>\s?(?:tok(?:en)?s?\s*/\s*(?:s|sec|second)|tokens?\s+per\s+second|(?:req|request)s?\s*/\s*s|ms|milliseconds?"
    r"|s\s?/\s?(?:request|req)|s|seconds?|sec|TPS|tps|K|k|M|x|×|[GT]i?B)\b)?(?![\w%％]|[.,]\d|-[A-Za-z\d])",
)
_RATIO = re.compile(
    r"\s*(?:(?:the|a|an|in|of|as|total|mean|average|median|overall|token|output)\s+)*"
    r"(?:fast|quick|high|better|improve|speed|throughput|gain|lower|less|short|latency|ttft|tpot|tps|(?P<worse>slow|worse))",
    re.IGNORECASE,
)
"""What follows a number of times that is a change, and not a number of devices."""
OTHER = re.compile(
    r"accura|quality|perplex|utili[sz]ation|memory|vram|score|confidence|hit[- ]rate|mmlu|gsm8k|aime|loss|power|cost"
    r"|price|acceptance|discount|size",
    re.IGNORECASE,
)
"""Of what a percentage may be that no log has."""
_FALLS = re.compile(
    r"\b(?:reduce\w*|reducing|reduction|lower\w*|decrease\w*|decreasing|drop\w*|slow\w*|worse\w*|less|fell|falls?|declin\w*|cut\w*|degrad\w*|regress\w*"
    r"|short\w*|loses?|lost|down)\b",
    re.IGNORECASE,
)
_STOP = frozenset(
    [
        "the",
        "a",
        "an",
        "of",
        "in",
        "on",
        "for",
        "with",
        "and",
        "to",
        "by",
        "our",
        "choosing",
        "choose",
        "selection",
        "select",
        "selecting",
        "enable",
        "enabling",
        "different",
        "option",
        "s",
        "options",
        "setting",
        "settings",
        "tuning",
        "tune",
        "optimization",
        "optimisation",
        "optimizing",
        "inference",
        "use",
        "using",
        "best",
        "max",
        "maximum",
        "number",
    ]
)
_AT_ONCE = re.compile(r"\b(?:bs|batch[- ]?size|concurren\w*)\W{0,3}(\d{1,6})\b", re.IGNORECASE)
_ALSO_METRICS = frozenset({"throughput", "latency"})
"""Names of workloads that are metrics in a sentence."""
BASELINE = re.compile(r"\bbase-?line\b|\bdefaults?\b|\bbefore\b|\bvanilla\b|\bout[- ]of[- ]the[- ]box\b", re.IGNORECASE)
TUNED = re.compile(r"\boptimi[sz]ed\b|\brecommend\w*|\btuned\b|\bafter\b|\bfinal\b|\bbest\b|\bwinner\b", re.IGNORECASE)


@dataclass(frozen=True)
class Number:
    """A number in a text."""

    printed: str
    """As a claim writes it, a fall with its sign."""
    start: int
    end: int
    is_percent: bool
    is_signed: bool
    times: int
    unit: str
    """As the text has it, in small letters."""
    before: str
    """The text between the last number and this one."""
    is_ratio: bool = False
    """Whether it says how many times as good something is: `1.23x faster`."""
    is_worse: bool = False
    """Whether it says how many times as bad: `1.03x slower`."""

    @property
    def is_in_seconds(self) -> bool:
        """Whether it is a time in seconds, which metrics have in milliseconds."""
        return self.unit.replace(" ", "") in ("s", "sec", "second", "seconds", "s/req", "s/request")

    @property
    def in_metric(self) -> str:
        """As `Figures.like` takes it: a time in seconds ends with `s`."""
        return f"{self.printed}s" if self.is_in_seconds else self.printed


def numbers_in(text: str) -> Iterator[Number]:
    """The numbers of a text that are no part of a name."""
    last = 0
    for match in _NUMBER.finditer(text):
        sign = (match["sign"] or "").strip()
        printed = match["number"].replace(",", "")
        if sign in ("-", "−", "–", "↓", "▼"):
            printed = f"-{printed}"
        elif sign in ("+", "↑", "▲"):
            printed = f"+{printed}"
        unit = (match["unit"] or "").strip().lower()
        yield Number(
            printed,
            match.start(),
            match.end(),
            match["percent"] is not None,
            printed[0] in "+-",
            int(match["times"] or 1),
            unit,
            text[last : match.start()],
            unit in ("x", "×") and (said := _RATIO.match(text, match.end())) is not None,
            unit in ("x", "×") and said is not None and said["worse"] is not None,
        )
        last = match.end()


def metric_in(text: str, *, last: bool = False) -> tuple[str, str | None] | None:
    """The first, or last, metric that a text names, with its statistic."""
    found = list(_METRIC.finditer(text))
    if not found:
        return None
    match = found[-1] if last else found[0]
    statistics = list(_STATISTIC.finditer(text))
    near = [each for each in statistics if abs(each.start() - match.start()) < 60]
    statistic = min(near, key=lambda each: abs(each.start() - match.start())).lastgroup if near else None
    return str(match.lastgroup), statistic


def falls(text: str) -> bool:
    """Whether a text speaks of a reduction."""
    return _FALLS.search(text) is not None


def tokens(text: str) -> set[str]:
    """Words of a text that distinguish it, without plurals."""
    return {word.rstrip("s") or word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _STOP}


class Names:
    """Finds which candidate, stage or workload a text means."""

    def __init__(
        self,
        stages: list[Stage],
        workloads: list[Workload],
        baseline: Candidate | None,
        tuned: Candidate | None,
    ) -> None:
        self.stages, self.workloads, self.baseline, self.tuned = stages, workloads, baseline, tuned
        self._aliases: list[tuple[str, Candidate]] = []
        for stage in stages:
            engines = {each.engine for each in stage.candidates}
            for candidate in stage.candidates:
                for alias in _aliases(candidate, len(engines) > 1):
                    self._aliases.append((alias, candidate))
        self._aliases.sort(key=lambda each: -len(each[0]))
        self._workload_words = [
            (words, workload)
            for workload in workloads
            for text in (workload.name, workload.title, *workload.words, workload.dataset or "")
            if (words := slug(text.split(":")[0]))
        ]
        self._workload_words.sort(key=lambda each: -len(each[0]))

    def candidate(self, text: str, spot: Spot) -> Candidate | None:
        """The candidate with the longest name in a text; of several, the one of the section it stands in."""
        return next(iter(self.candidates(text, spot)), None) or self.role(text)

    def role(self, text: str) -> Candidate | None:
        """The baseline or the recommended candidate, where a text speaks of it so."""
        if BASELINE.search(text):
            return self.baseline
        return self.tuned if TUNED.search(text) else None

    def candidates(self, text: str, spot: Spot) -> list[Candidate]:
        """All candidates that a text names, in the order of their names in it."""
        padded = f"-{slug_all(text)}-"
        taken: list[tuple[int, int, Candidate]] = []
        for alias, _ in self._aliases:
            start = padded.find(f"-{alias}-")
            if start < 0 or any(start + 1 < end and begin < start + 1 + len(alias) for begin, end, _ in taken):
                continue
            same = [candidate for name, candidate in self._aliases if name == alias]
            own = [each for each in same if _section_of(self.stages, each) in spot.sections]
            chosen = own[0] if own else same[0]
            if len(own) > 1 or (not own and len({id(each) for each in same}) > 1 and not _is_engine(alias)):
                continue
            taken.append((start + 1, start + 1 + len(alias), chosen))
        return [each for _, _, each in sorted(taken, key=lambda each: each[0])]

    def stage(self, text: str) -> Stage | None:
        """The stage whose heading shares most words with a text, at least half of the text's."""
        words = tokens(text)
        if not words:
            return None
        best, most = None, 0.0
        for stage in self.stages:
            own = tokens(stage.title)
            shared = sum(word in own or bool(difflib.get_close_matches(word, own, 1, 0.85)) for word in words)
            score = shared / len(words | own) if shared * 2 >= len(words) else 0.0
            if score > most:
                best, most = stage, score
        return best

    def workload(self, text: str) -> Workload | None:
        """The workload that a text names, by its limit, title, data set or lengths."""
        by_limit = self._by_limit(text)
        if by_limit is not None:
            return by_limit
        padded = f"-{slug_all(text)}-"
        for words, workload in self._workload_words:
            if words in _ALSO_METRICS and len(text.split()) > 2:
                continue
            if f"-{words}-" in padded:
                same = {id(each) for other, each in self._workload_words if other == words}
                if len(same) == 1:
                    return workload
        return self._by_lengths(text)

    def _by_limit(self, text: str) -> Workload | None:
        """The only workload with the concurrency (`BS=2`) or request rate (`8 RPS`) that a text names."""
        at_once, rate = _AT_ONCE.search(text), rate_said([text])
        fitting = [
            each
            for each in self.workloads
            if (at_once and each.max_concurrency == int(at_once[1])) or (rate is not None and each.request_rate == rate)
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _by_lengths(self, text: str) -> Workload | None:
        values = [
            int(float(number.replace(",", "")) * (1000 if kilo else 1))
            for number, kilo in re.findall(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)\s*([kK]?)(?![\w.%])", text[:200])
        ]
        fitting = [each for each in self.workloads if each.input_tokens in values and each.output_tokens in values]
        return fitting[0] if len(fitting) == 1 else None


def _section_of(stages: list[Stage], candidate: Candidate) -> int:
    return next((stage.section for stage in stages if stage.name == candidate.stage), -1)


def _is_engine(alias: str) -> bool:
    return any(alias in (slug(each.key), slug(each.title)) for each in ENGINES)


def slug_all(text: str) -> str:
    """Like `slug`, but of the whole text."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def _aliases(candidate: Candidate, with_engine: bool) -> list[str]:
    texts = [candidate.name, candidate.label, candidate.printed or "", *candidate.labels, *candidate.headings]
    engine = next((each for each in ENGINES if each.key == candidate.engine), None)
    if with_engine and engine is not None:
        texts += [engine.key, engine.title]
    if candidate.printed:
        with contextlib.suppress(ValueError):
            texts += [value for value in read_command(f"x {candidate.printed}").options.values() if value]
    return [alias for alias in dict.fromkeys(slug(each) for each in texts) if len(alias) > 1]
