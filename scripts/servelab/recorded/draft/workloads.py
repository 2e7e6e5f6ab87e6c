"""Sorts results by what was sent: results with the same lengths, requests and limits are of one workload."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from servelab.recorded.draft.observed import Client, Observed, Result
from servelab.study.recorded.commands import read_command

_SAME_INPUT, _SAME_OUTPUT, _SAME_REQUESTS = 0.03, 0.35, 0.06
"""Relative differences within one workload: prompts are the same, outputs and successes vary."""
_LENGTHS = re.compile(
    r"(?P<input>\d[\d,]*)\s*(?P<kilo>[kK]?)(?:[- ]?tokens?)?\s*(?:input|prompt|in\b)(?:\s*tokens?)?"
    r"\s*[,;/&+x×]?\s*(?:and\s+)?"
    r"(?P<output>\d[\d,]*)\s*(?P<kilo2>[kK]?)(?:[- ]?tokens?)?\s*(?:output|generated|out\b)",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"(?<![\w.])(?P<input>\d{2,6})(?P<kilo>)\s*(?:x|×|/|in\s*/)\s*(?P<output>\d{1,6})(?P<kilo2>)(?![\w.])"
)
_DATASETS = re.compile(
    r"share[- ]?gpt(?:[- _]?v\d)?|sonnet|burst[- ]?gpt|hugging ?face|mooncake|mt[- ]?bench|humaneval|gsm8k|alpaca"
    r"|longbench|random|synthetic|custom",
    re.IGNORECASE,
)
_INPUT = re.compile(r"(?:input|prompt|isl)\w*\W{1,4}(\d{1,7})\b", re.IGNORECASE)
_OUTPUT = re.compile(r"(?:output|osl)\w*\W{1,4}(\d{1,7})\b", re.IGNORECASE)
_PROMPTS = re.compile(
    r"\b(?:short|medium|long|very long|generation|summari[sz]ation|chat|rag)\b.{0,20}\b(?:prompts?|contexts?|inputs?"
    r"|outputs?"
    r"|workload|scenario|heavy)\b|\b\d+\s*[kK]?\s*(?:tokens?\s*)?(?:input|output|prompt|context)"
    r"|concurren|request[- ]rate",
    re.IGNORECASE,
)
_CONCURRENCY = re.compile(r"concurren\w*\D{0,12}?(\d+)|(\d+)\s*(?:-way )?concurren", re.IGNORECASE)
_RATE = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:rps|qps|(?:requests?|req)\s*/\s*s)\b|\b(?:request[- ])?rate\W{0,3}(\d+(?:\.\d+)?)(?!\S*%)",
    re.IGNORECASE,
)
_OPTIONS = {
    "dataset": ("--dataset-name", "--dataset", "--data-type"),
    "inputs": ("--random-input-len", "--random-input", "--input-len", "--isl", "--synthetic-input-tokens-mean"),
    "outputs": ("--random-output-len", "--random-output", "--output-len", "--osl", "--output-tokens-mean"),
    "prompts": ("--num-prompts", "--num-prompt", "--number", "--num-requests", "--max-requests", "--request-count"),
    "rate": ("--request-rate", "--rate", "--qps"),
    "concurrency": ("--max-concurrency", "--concurrency", "--parallel"),
}


@dataclass
class Workload:
    """What was sent, as far as results and page say."""

    name: str = ""
    title: str = ""
    prompts: int = 1
    input_tokens: int | None = None
    output_tokens: int | None = None
    max_concurrency: int | None = None
    request_rate: float | None = None
    dataset: str | None = None
    command: str | None = None
    results: list[Result] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """What the page calls it."""
    guesses: dict[str, str] = field(default_factory=dict)
    """Key → how it was guessed."""


@dataclass(frozen=True)
class _Sent:
    """What one result says of its requests."""

    requests: float | None
    is_exact: bool
    input_mean: float | None
    output_mean: float | None
    concurrency: float | None
    rate: float | None
    words: frozenset[str]


def sort_results(observed: Observed) -> list[Workload]:
    """The workloads, those of the first results first."""
    groups: list[tuple[_Sent, Workload]] = []
    for result in observed.results:
        sent = _sent(result)
        for first, workload in groups:
            if _alike(first, sent, workload.results, result):
                workload.results.append(result)
                break
        else:
            groups.append((sent, Workload(results=[result])))
    groups = _with_few_successes(groups)
    definitions = _definitions(observed)
    clients = [(client, client_settings(client.text)) for client in observed.clients]
    for sent, workload in groups:
        _describe(workload, sent, definitions, clients)
    name_workloads([workload for _, workload in groups])
    return [workload for _, workload in groups]


def _with_few_successes(groups: list[tuple[_Sent, Workload]]) -> list[tuple[_Sent, Workload]]:
    """Puts a lone result into the workload that its page calls the same, if it is one with fewer successes.

    Where many requests fail, the lengths of the others differ, too.
    """
    kept: list[tuple[_Sent, Workload]] = []
    ranked = sorted(groups, key=lambda each: -len(each[1].results))
    for sent, workload in groups:
        named = _dataset_of(workload.results[0])
        for other, larger in ranked:
            is_larger = len(larger.results) > 1 and len(workload.results) == 1 and larger is not workload
            if not is_larger or named is None or sent.is_exact or (sent.requests or 0) >= (other.requests or 0):
                continue
            if named == _dataset_of(larger.results[0]) and sent.concurrency == other.concurrency:
                larger.results.append(workload.results[0])
                larger.guesses["prompts"] = "as many as the other logs of it have"
                break
        else:
            kept.append((sent, workload))
    return kept


def _dataset_of(result: Result) -> str | None:
    found = next((match for text in _said_of(result) if (match := _DATASETS.search(text))), None)
    return slug(found[0]) if found else None


def client_settings(text: str) -> dict[str, str]:
    """What a load client's command says it sends."""
    try:
        options = read_command(text).options
    except ValueError:
        return {}
    found = {}
    for name, spellings in _OPTIONS.items():
        value = next((options[each] for each in spellings if options.get(each)), None)
        if value is not None:
            found[name] = value
    return found


def _sent(result: Result) -> _Sent:
    block = result.block
    completed, failed = block.value("requests_completed"), block.value("requests_failed")
    inputs, outputs = block.value("input_tokens"), block.value("output_tokens")
    texts = _said_of(result)
    concurrency = block.settings.get("max_concurrency")
    if concurrency is None:
        found = next((match for text in texts if (match := _CONCURRENCY.search(text))), None)
        concurrency = float(found[1] or found[2]) if found else None
    rate = block.settings.get("request_rate_per_s")
    if rate is None and (said := rate_said(texts)) is not None:
        rate = said
        if concurrency == block.value("peak_concurrency"):  # what was reached, printed as a limit
            concurrency = None
    return _Sent(
        (completed or 0) + (failed or 0) if completed is not None else None,
        failed is not None,
        inputs / completed if completed and inputs is not None else None,
        outputs / completed if completed and outputs is not None else None,
        float(concurrency) if isinstance(concurrency, int | float) else None,
        float(rate) if isinstance(rate, int | float) and rate != float("inf") else None,
        frozenset() if completed and inputs is not None else frozenset(texts[:-2]) or frozenset(texts),
    )


def rate_said(texts: list[str]) -> float | None:
    """Requests per second that the nearest text names."""
    found = next((match for text in texts if (match := _RATE.search(text))), None)
    return float(found[1] or found[2]) if found else None


def _said_of(result: Result) -> list[str]:
    """What a page says of a result, the nearest first."""
    spot = result.spot
    serving = result.serving.spot.before if result.serving else ""
    return [*result.comments, spot.label or "", serving, *spot.path[:-3:-1]]


def _alike(one: _Sent, other: _Sent, results: list[Result], result: Result) -> bool:
    if (one.rate, one.words) != (other.rate, other.words):
        return False
    if one.concurrency != other.concurrency and not _is_compared(results, result):
        return False
    if (one.is_exact or other.is_exact) and one.requests != other.requests:
        return False
    pairs = (
        (one.requests, other.requests, _SAME_REQUESTS),
        (one.input_mean, other.input_mean, _SAME_INPUT),
        (one.output_mean, other.output_mean, _SAME_OUTPUT),
    )
    return all(_near(mine, its, most) for mine, its, most in pairs)


def _is_compared(results: list[Result], result: Result) -> bool:
    """Whether another command's result is under its heading: some clients print as limit what was reached."""
    return any(
        each.spot.section == result.spot.section
        and each.serving is not None
        and result.serving is not None
        and each.serving.text != result.serving.text
        and each.block.value("peak_concurrency") == each.block.settings.get("max_concurrency")
        for each in results
    )


def _near(one: float | None, other: float | None, most: float) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= most * max(one, other)


def _definitions(observed: Observed) -> list[tuple[str, int, int]]:
    """Lengths that the page defines: their text, input and output."""
    found = []
    for text, _ in [*observed.lines, *observed.headings]:
        match = _LENGTHS.search(text) or _PAIR.search(text)
        if match:
            found.append((text, _integer(match["input"], match["kilo"]), _integer(match["output"], match["kilo2"])))
    for text, spot in observed.profiles:
        inputs, outputs = _INPUT.search(text), _OUTPUT.search(text)
        if inputs and outputs:
            found.append((spot.path[-1] if spot.path else "", int(inputs[1]), int(outputs[1])))
    for table, _, _ in observed.tables:
        for _, cells in table.rows:
            match = _LENGTHS.search(" ".join(cells)) or _PAIR.search(cells[0])
            if match:
                lengths = _integer(match["input"], match["kilo"]), _integer(match["output"], match["kilo2"])
                found.append((cells[0], *lengths))
    return found


def _integer(text: str, kilo: str) -> int:
    return int(text.replace(",", "")) * (1000 if kilo else 1)


def _describe(
    workload: Workload,
    sent: _Sent,
    definitions: list[tuple[str, int, int]],
    clients: list[tuple[Client, dict[str, str]]],
) -> None:
    own = next((each.client for each in workload.results if each.client), None)
    most = max((_sent(each).requests or 0 for each in workload.results), default=0)
    workload.prompts = max(1, int(most))
    limits = {_sent(each).concurrency for each in workload.results}
    workload.max_concurrency = int(sent.concurrency) if sent.concurrency and len(limits) == 1 else None
    workload.request_rate = sent.rate
    if sent.rate is not None and "request_rate_per_s" not in workload.results[0].block.settings:
        workload.guesses["request_rate"] = "from the text above its logs"
    client = _client_of(sent, own, clients)
    if client is not None:
        settings = client_settings(client.text)
        workload.command = client.text
        workload.dataset = settings.get("dataset")
        workload.guesses["command"] = "the page's command with these lengths"
        asked = settings.get("prompts", "")
        if asked.isdigit() and not sent.is_exact and most <= int(asked) <= most * 1.1:
            workload.prompts = int(asked)
    if not sent.is_exact and (client is None or workload.prompts != most):
        workload.guesses["prompts"] = f"the page's command says so; {most:.0f} succeeded at most"
    if not sent.is_exact and client is None:
        workload.guesses["prompts"] = "the most requests that succeeded in a log"
    known = _definition(sent, definitions)
    if known is not None:
        text, workload.input_tokens, workload.output_tokens = known
        workload.words.append(re.sub(r"^(?:[-*+]|\d+[.)])\s+", "", text))
        workload.guesses["title"] = "from the page's list of lengths"
    elif client is not None and (lengths := _lengths(client_settings(client.text))):
        workload.input_tokens, workload.output_tokens = lengths
    for result in workload.results:
        workload.words += [each for each in (*result.comments, result.spot.label or "") if each]
    if workload.dataset is None:
        words = [*workload.words, *(text for result in workload.results[:1] for text in result.spot.path[::-1])]
        found = next((match for text in words if (match := _DATASETS.search(text))), None)
        workload.dataset = found[0] if found else None


def _lengths(settings: dict[str, str]) -> tuple[int, int] | None:
    inputs, outputs = settings.get("inputs", ""), settings.get("outputs", "")
    return (int(inputs), int(outputs)) if inputs.isdigit() and outputs.isdigit() and int(inputs) else None


def _client_of(sent: _Sent, own: Client | None, clients: list[tuple[Client, dict[str, str]]]) -> Client | None:
    """The command that sent these requests: the one with their lengths, or the only one with lengths that vary."""
    fitting, varying = [], []
    for client, settings in clients:
        lengths = _lengths(settings)
        if lengths and sent.input_mean:
            if _near(sent.input_mean, lengths[0], 0.05) and (sent.output_mean or 0) <= lengths[1] * 1.02:
                fitting.append(client)
        elif settings and not lengths:
            varying.append((client, settings))
    if own is not None and (own in fitting or any(own == each for each, _ in varying) or not sent.input_mean):
        return own
    if fitting:
        return fitting[0]
    round_inputs = sent.input_mean is not None and abs(sent.input_mean / 64 - round(sent.input_mean / 64)) < 0.02
    asked = [each for each, settings in varying if _asks(settings, sent)]
    return asked[0] if asked and not (round_inputs and clients != varying) else None


def _asks(settings: dict[str, str], sent: _Sent) -> bool:
    prompts, concurrency = settings.get("prompts", ""), settings.get("concurrency", "")
    if concurrency.isdigit() and sent.concurrency and int(concurrency) != int(sent.concurrency):
        return False
    if not prompts.isdigit() or sent.requests is None:
        return True
    return sent.requests <= int(prompts) <= sent.requests * 1.1


def _definition(sent: _Sent, definitions: list[tuple[str, int, int]]) -> tuple[str, int, int] | None:
    fitting = [
        each
        for each in definitions
        if sent.input_mean
        and _near(sent.input_mean, each[1], 0.05)
        and sent.output_mean is not None
        and 0.5 * each[2] <= sent.output_mean <= 1.05 * each[2]
    ]
    return min(fitting, key=lambda each: abs(each[2] - (sent.output_mean or 0)), default=None)


def name_workloads(workloads: list[Workload]) -> None:
    """Gives each a name of its own and a title, from what it sends."""
    for workload in workloads:
        lengths = f"{workload.input_tokens}x{workload.output_tokens}" if workload.input_tokens else ""
        dataset = slug(workload.dataset or "") if not (lengths and (workload.dataset or "random") == "random") else ""
        workload.name = "-".join(each for each in (dataset, lengths) if each) or _from_figures(workload)
        sent = workload.dataset or "requests"
        known = workload.words[0] if workload.guesses.get("title") else None
        workload.title = known or f"{sent} {lengths}".strip() + f", {workload.prompts} prompts"
    for key in ("max_concurrency", "request_rate", "prompts"):
        named: dict[str, list[Workload]] = {}
        for workload in workloads:
            named.setdefault(workload.name, []).append(workload)
        for same in named.values():
            if len({getattr(each, key) for each in same}) > 1:
                for workload in same:
                    value = getattr(workload, key)
                    if value is not None:
                        workload.name += f"-{key.rsplit('_', 1)[-1]}-{value:g}"
                        workload.title += f", {key.replace('_', ' ')} {value:g}"
    taken: set[str] = set()
    for workload in workloads:
        name, title, number = workload.name, workload.title, 1
        while workload.name in taken:
            number += 1
            workload.name, workload.title = f"{name}-{number}", f"{title} ({number})"
        taken.add(workload.name)


def _from_figures(workload: Workload) -> str:
    sent = _sent(workload.results[0])
    if sent.input_mean is None:
        return slug(next((each for each in workload.words if slug(each)), "")) or "requests"
    return f"about-{sent.input_mean:.0f}x{sent.output_mean or 0:.0f}"


def names_workload(text: str) -> bool:
    """Whether a text says what was sent, and not what served it."""
    return bool(_DATASETS.search(text) or _LENGTHS.search(text) or _PAIR.search(text) or _PROMPTS.search(text))


def slug(text: str) -> str:
    """A text as a name: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60].strip("-.")
