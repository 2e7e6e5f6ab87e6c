"""Logs made to harm their reader: each is read or ends in clear errors with file and line, in bounded memory."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servelab.recorded.readers import Block, ReadError, scan_file
from servelab.recorded.readers.lines import visible_lines

ROOT = Path(__file__).parents[2]
SAMPLES = Path(__file__).parents[1] / "data/readers"
HEADER = "============ Serving Benchmark Result ============\n"
FOOTER = "=" * 50 + "\n"
TITLE = "Serving Benchmark Result"
JSON = {"vllm": "vllm-0.32.json", "guidellm": "guidellm-0.8.1.json", "aiperf": "aiperf-0.13.json"}


def console(draw: random.Random) -> str:
    """A real tool's block, and some of its server's log before it."""
    return (SAMPLES / draw.choice(["vllm-0.32.txt", "sglang-0.5.txt"])).read_text()


def block(*lines: str) -> str:
    return HEADER + "".join(f"{line}\n" for line in lines) + FOOTER


def line_in_block(draw: random.Random, line: str) -> str:
    """A sound block with one more line."""
    lines = console(draw).splitlines()
    place = next(number for number, each in enumerate(lines) if TITLE in each) + draw.randrange(1, 8)
    return "\n".join([*lines[:place], line, *lines[place:]]) + "\n"


def odd_value(draw: random.Random) -> Any:
    deep: Any = 1
    for _ in range(draw.choice([3, 70, 400, 800])):
        deep = [deep] if draw.random() < 0.5 else {"a": deep}
    values: list[Any] = [
        None,
        True,
        -1,
        10**400,
        1e308,
        float("nan"),
        float("inf"),
        float("-inf"),
        "x",
        "",
        [],
        {},
        [1],
    ]
    return draw.choice([*values, {"a": []}, deep, "\ud800", "\x1b[2J\0", "x" * 100_000, [deep], {"successful": 3}])


def damaged(draw: random.Random, document: Any, changes: int) -> Any:
    """A document with odd values at random places."""
    for _ in range(changes):
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw.choice(keys)
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or draw.random() < 0.3:
                place[key] = odd_value(draw)
                break
            place = inner
    return document


def damaged_json(tool: str, changes: int) -> Made:
    def made(draw: random.Random, size: int) -> str:
        document = damaged(draw, json.loads((SAMPLES / JSON[tool]).read_text()), changes)
        return json.dumps(document)

    return made


def with_key(tool: str, text: str) -> str:
    """A real document with one more entry, as text."""
    return "{" + text + "," + (SAMPLES / JSON[tool]).read_text().strip()[1:]


def table(cells: str) -> str:
    return (SAMPLES / "aiperf-0.13.csv").read_text() + cells


def lines_of(*lines: str, before: str = "x\n", result: bool = False) -> Made:
    """The same lines again and again; with a sound result at the end, whose place then is looked for."""

    def made(draw: random.Random, size: int) -> str:
        text = "".join(f"{line}\n" for line in lines)
        return before + text * (size // len(text.encode())) + ("\n" + console(draw) if result else "")

    return made


def random_lines(*parts: str) -> Made:
    """Lines of parts in random order."""

    def made(draw: random.Random, size: int) -> str:
        text = "".join(draw.choice([*parts, "\n"]) for _ in range(4000))
        return "x\n" + text * (size // len(text.encode()) + 1) + "\n" + console(draw)

    return made


Made = Callable[[random.Random, int], str | bytes]
KINDS: dict[str, Made] = {
    # Lines and patterns.
    "spaces": lambda draw, size: " " * size,
    "headers": lambda draw, size: HEADER * (size // 51),
    "long prefixes": lambda draw, size: "".join(f"{draw.random()} " * 24 + HEADER for _ in range(size // 500)),
    "a line without end": lambda draw, size: "x" * size,
    "no text": lambda draw, size: draw.randbytes(size),
    # Figures.
    "6,000 digits": lambda draw, size: line_in_block(draw, "Failed requests: " + "9" * 6000),
    "control characters": lambda draw, size: line_in_block(draw, "Failed requests: \x07\x1b[2J\u202e\x9b5"),
    # JSON.
    "deep lists": lambda draw, size: "[" * size,
    "thousands of figures": lambda draw, size: with_key(
        "vllm", ",".join(f'"p{n % 100}.{n}_ttft_ms": {n}' for n in range(min(size // 25, 20_000)))
    ),
    # Lines that each begin something.
    "braces": lines_of("{"),
    "a number each line of an object": lines_of("1", before='x\n{"a":[\n"a",\n'),
    "rules of a table": lines_of("+---+"),
    "a rule of a table that does not end": lambda draw, size: "x\n" + "+-" * min(size // 2, 500_000) + "x |\n",
    # Above a result, whose place is looked for.
    "parts of everything": random_lines(
        '{"', "|", "-|", "| a |", " ===", "# a", "$ a", "\r", "%|", "\x1b[", "a: 1", "```"
    ),
    "damaged vLLM": damaged_json("vllm", 1),
    # Tables.
    "a table's rows": lambda draw, size: table("Other Metric,1\n" * (size // 15)),
    "a table without end": lambda draw, size: "Metric,avg\n" + "x,1\n" * (5 << 18),
}


SMALL = 40_000
"""Bytes; a pattern with quadratic time needs 9 s for so many spaces."""


def written(kind: str, seed: int, size: int, folder: Path) -> Path:
    content = KINDS[kind](random.Random(f"{kind} {seed}"), size)
    log = folder / "log"
    log.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    return log


def test_hostile_logs_are_read_or_refused(tmp_path: Path) -> None:
    """Each in clear errors with file and line, without a traceback."""
    for kind in KINDS:
        log = written(kind, 0, SMALL, tmp_path)
        found = list(scan_file(log))
        assert (found and len(found) <= 101) or all(isinstance(each, Block) for each in found), kind
        for each in found:
            if isinstance(each, ReadError):
                message = str(each)
                assert re.match(rf"{re.escape(str(log))}(:\d+)?: ", message), kind
                assert message.isprintable() and len(message) <= 1100
            else:
                assert json.loads(json.dumps([each.metrics(), each.settings, each.tool_version], allow_nan=False))


@pytest.mark.parametrize("sizes", [[1], [2, 3], [7], [64], [1000]])
@pytest.mark.parametrize("seed", range(5))
def test_lines_do_not_depend_on_the_parts_of_a_file(seed: int, sizes: list[int]) -> None:
    draw = random.Random(seed)
    parts = ["a", "\n", "\r", "\r\n", "\x1b[1m", " 50%|## | 5/10 [00:01<00:01]", "===", " ", "é", "\u2028", "x: 1.00"]
    text = "".join(draw.choice(parts) for _ in range(400))
    whole = list(visible_lines([text]))
    cuts, start = [], 0
    while start < len(text):
        step = draw.choice(sizes)
        cuts.append(text[start : start + step])
        start += step
    assert list(visible_lines(cuts)) == whole
    assert whole[-1][0] == text.count("\n") + 1


def test_a_device_is_no_log() -> None:
    (found,) = scan_file(Path("/dev/zero"))
    assert str(found) == "/dev/zero: is a device, not a log"
