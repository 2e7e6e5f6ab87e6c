"""Logs made to harm their reader, from a seeded generator. Each is about as large as it is asked to be."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parents[1] / "data/readers"
HEADER = "============ Serving Benchmark Result ============\n"
FOOTER = "=" * 50 + "\n"
SERVER_LINE = (
    "INFO 11-23 06:12:04 [loggers.py:127] Engine 000: Avg generation throughput: 1024.5 tokens/s, Running: 8\n"
)
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
SECTION = "=" * 60 + "\n= REQUEST DETAILS\n" + "=" * 60 + "\n"
DOCKER = '{"log":"a\\n","stream":"stdout","time":"t"}\n'
KINDS: dict[str, Made] = {
    # Lines and patterns.
    "spaces": lambda draw, size: " " * size,
    "spaces and a word": lambda draw, size: " " * size + "x",
    "tabs in a block": lambda draw, size: line_in_block(draw, "a:" + "\t" * min(size, 900_000) + "b"),
    "spaces within a value": lambda draw, size: line_in_block(draw, "Backend: a" + " " * min(size, 900_000) + "b"),
    "spaces before a percent": lambda draw, size: " " * size + "50%|",
    "half progress bars": lambda draw, size: "1%|a|b[" * (size // 7),
    "progress bars without end": lambda draw, size: "1%|" * (size // 3),
    "progress bars": lambda draw, size: " 50%|#####     | 5/10 [00:01<00:01, 5.00it/s]" * (size // 46),
    "redrawn progress bars": lambda draw, size: "\r 50%|#####     | 5/10 [00:01<00:01, 5.00it/s]" * (size // 47),
    "equals signs": lambda draw, size: "=" * size,
    "equals signs and spaces": lambda draw, size: f"{TITLE} " + "=== " * (size // 4),
    "a title and spaces": lambda draw, size: (TITLE + " " * 2000) * (size // 2024),
    "titles": lambda draw, size: TITLE * (size // 24),
    "headers in one line": lambda draw, size: HEADER.strip() * (size // 50),
    "headers": lambda draw, size: HEADER * (size // 51),
    "footers": lambda draw, size: ("Mean TTFT (ms): 1\n" + FOOTER) * (size // 69),
    "broken colours": lambda draw, size: ("\x1b[" + "0" * 2000) * (size // 2002),
    "a title of the terminal without end": lambda draw, size: "\x1b]" * (size // 2),
    "dashes": lambda draw, size: line_in_block(draw, "-" * min(size, 900_000) + " a " + "-"),
    "half sections": lambda draw, size: line_in_block(draw, "--- a --" * min(size // 8, 100_000) + "x"),
    "a prefix of numbers": lambda draw, size: "1 " * 200 + HEADER + ("1" * 10_000 + "\n") * (size // 10_000),
    "long prefixes": lambda draw, size: "".join(f"{draw.random()} " * 24 + HEADER for _ in range(size // 500)),
    "a line without end": lambda draw, size: "x" * size,
    "a block's line without end": lambda draw, size: HEADER + "Successful requests: " + "1" * size,
    "a block without end": lambda draw, size: HEADER + "a: 1\n" * (size // 5),
    "empty lines": lambda draw, size: "\n" * size,
    "carriage returns": lambda draw, size: "\r" * size,
    "no text": lambda draw, size: draw.randbytes(size),
    "zeros": lambda draw, size: bytes(size),
    "half of UTF-16": lambda draw, size: b"\xff\xfe" + draw.randbytes(size),
    # Figures.
    "6,000 digits": lambda draw, size: line_in_block(draw, "Failed requests: " + "9" * 6000),
    "a million digits": lambda draw, size: line_in_block(draw, "Failed requests: " + "9" * 1_000_001),
    "digits in a setting": lambda draw, size: line_in_block(draw, "Maximum request concurrency: " + "9" * 6000),
    "digits in a percentile": lambda draw, size: line_in_block(draw, f"P{'0' * 6000}99 TTFT (ms): 1.00"),
    "thousands of percentiles": lambda draw, size: block(*(f"P{n}.{draw.random()} TTFT (ms): 1" for n in range(1900))),
    "digits of another script": lambda draw, size: line_in_block(draw, "Failed requests: \u0661\u0662"),
    "control characters": lambda draw, size: line_in_block(draw, "Failed requests: \x07\x1b[2J\u202e\x9b5"),
    # JSON.
    "deep lists": lambda draw, size: "[" * size,
    "deep objects": lambda draw, size: '{"a":' * (size // 5),
    "deep closed lists": lambda draw, size: "[" * (size // 2) + "]" * (size // 2),
    "a deep setting": lambda draw, size: with_key("vllm", f'"backend": {"[" * 700}{"]" * 700}'),
    "a deep unknown value": lambda draw, size: with_key("vllm", f'"odd": {"[" * 900}{"]" * 900}'),
    "an integer of 6,000 digits": lambda draw, size: with_key("vllm", '"failed": ' + "9" * 6000),
    "an integer of 400 digits": lambda draw, size: with_key("vllm", '"rtfx": ' + "9" * 400),
    "no number as a setting": lambda draw, size: with_key(
        "vllm", f'"request_rate": {draw.choice(["NaN", "-Infinity"])}'
    ),
    "a surrogate": lambda draw, size: with_key("vllm", '"backend": "\\ud800"'),
    "a surrogate as a version": lambda draw, size: json.dumps(
        json.loads((SAMPLES / JSON["aiperf"]).read_text()) | {"aiperf_version": "\ud800"}
    ),
    "empty lists": lambda draw, size: "[" + "[]," * (size // 3) + "[]]",
    "empty objects": lambda draw, size: "{}\n" * (size // 3),
    "numbers": lambda draw, size: "[1]\n" * (size // 4),
    "a number each line": lambda draw, size: "{}\n" + "1\n" * (size // 2),
    "objects in one line": lambda draw, size: "{}" * (size // 2),
    "objects of one key": lambda draw, size: '{"a":1}\n' * (size // 8),
    "objects of another program": lambda draw, size: "x\n" + '{"a":1}\n' * (size // 8),
    "a number each line of a text": lambda draw, size: "x\n" + "1\n" * (size // 2),
    "bars": lambda draw, size: "x\n" + "|\n" * (size // 2),
    "a text without end": lambda draw, size: '{"a": "' + "x" * size,
    "thousands of keys": lambda draw, size: json.dumps({f"{draw.random()}": n for n in range(size // 30)}),
    "thousands of figures": lambda draw, size: with_key(
        "vllm", ",".join(f'"p{n % 100}.{n}_ttft_ms": {n}' for n in range(min(size // 25, 20_000)))
    ),
    # Lines that each begin something.
    "braces": lines_of("{"),
    "braces from the first line on": lines_of("{", before=""),
    "first keys": lines_of('{"'),
    "first keys of Docker": lines_of('{"log":"', before=DOCKER),
    "first keys in a block": lines_of('{"log":"', before=HEADER),
    "objects that another line breaks": lines_of("{", '"', "x"),
    "objects of two lines": lines_of("{", '"":1}'),
    "prefixes of objects": lambda draw, size: "x\n" + "".join(f'{n:x}g{{"\n' for n in range(size // 9)),
    "empty objects and numbers": lines_of("{}", "1", before=""),
    "empty objects and lists": lines_of("{}[1]", before=""),
    "a number each line of an object": lines_of("1", before='x\n{"a":[\n"a",\n'),
    "escaped quotes": lambda draw, size: 'x\n{"a' + '\\"' * min(size // 2, 500_000),
    "rules of a table": lines_of("+---+"),
    "rules of Markdown": lines_of("|---|"),
    "small tables": lines_of("+-+", "|a|"),
    "small tables of Markdown": lines_of("|a|", "|-|", "|b|", ""),
    "corners of a table": lambda draw, size: "x\n" + "┏" * min(size // 3, 300_000) + " |\n",
    "a rule of a table that does not end": lambda draw, size: "x\n" + "+-" * min(size // 2, 500_000) + "x |\n",
    "ends of rules": lines_of(" ==="),
    "rules": lines_of("=" * 50),
    "lines of a section": lines_of("a:", before="x\n" + SECTION),
    "short lines of a section": lines_of("a", before="x\n" + SECTION),
    "numbers in a frame": lines_of("1 " * 990 + "x", before="x\n" + "=" * 30 + " A title " + "=" * 30 + "\n"),
    # Above a result, whose place is looked for.
    "headings": lines_of("# a", "## b", result=True),
    "headings and commands": lines_of("# a", "$ b", result=True),
    "continued commands": lines_of("$ a \\", "\\", result=True),
    "fences": lines_of("```", "~~~", result=True),
    "a label of asterisks": lambda draw, size: "a" + "*" * min(size, 900_000) + "b\n" + console(draw),
    "a heading of spaces": lambda draw, size: "# a" + " " * min(size, 900_000) + "b\n" + console(draw),
    "colours and bars": lines_of("\x1b", "%|", "a\rb", result=True),
    "objects, bars and commands": lines_of("$ \\", "%|", "\r", '\\"', '{"a":1}\r', result=True),
    "objects in headings": lines_of('#  * {"a":1}', "\\\r{}", result=True),
    "parts of everything": random_lines(
        '{"', "|", "-|", "| a |", " ===", "# a", "$ a", "\r", "%|", "\x1b[", "a: 1", "```"
    ),
    "damaged vLLM": damaged_json("vllm", 1),
    "more damaged vLLM": damaged_json("vllm", 5),
    "damaged guidellm": damaged_json("guidellm", 1),
    "more damaged guidellm": damaged_json("guidellm", 8),
    "damaged AIPerf": damaged_json("aiperf", 1),
    "more damaged AIPerf": damaged_json("aiperf", 8),
    # Tables.
    "a table's NUL": lambda draw, size: table("Request Count,\0\n"),
    "a table's large cell": lambda draw, size: table("Request Latency (ms)," + "9" * 200_000 + "\n"),
    "a table's commas": lambda draw, size: "Metric," + "," * size + "\n",
    "a table's empty lines": lambda draw, size: "Metric,avg\n" + "\n" * size,
    "a table's open quote": lambda draw, size: table('"Request Count,' + "x" * min(size, 120_000)),
    "a table's rows": lambda draw, size: table("Other Metric,1\n" * (size // 15)),
    "a table without end": lambda draw, size: "Metric,avg\n" + "x,1\n" * (5 << 18),
}


def sound(form: str, size: int) -> str:
    """A log of the same form and about the same size that a tool may have written, with its result at the end."""
    if form == "json":
        document = json.loads((SAMPLES / JSON["vllm"]).read_text())
        draw = random.Random(0)
        document["itls"] = [[draw.random() for _ in range(100)] for _ in range(size // 2100)]
        return json.dumps(document)
    if form == "csv":
        return (SAMPLES / "aiperf-0.13.csv").read_text()
    return SERVER_LINE * (size // len(SERVER_LINE)) + (SAMPLES / "vllm-0.32.txt").read_text()


def form_of(content: str | bytes) -> str:
    start = content.lstrip()[:7]
    if isinstance(start, bytes):
        return "console"
    return "json" if start.startswith(("{", "[")) else "csv" if start == "Metric," else "console"
