"""Logs made to harm their reader, and damaged ones: each is read or ends in clear errors, in little time."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test_strangers_logs import WRAPPED

from servelab.recorded.readers import Block, ReadError, scan_file

SAMPLES = Path(__file__).parents[1] / "data/readers"
HEADER = "============ Serving Benchmark Result ============\n"
CONSOLE = (SAMPLES / "sglang-0.5.txt").read_text()
SAVED = (SAMPLES / "vllm-0.32.json").read_text().strip()
CSV = (SAMPLES / "aiperf-0.13.csv").read_text()
DAMAGED = [*(path.read_text() for path in sorted(SAMPLES.rglob("*-*.*"))), *WRAPPED.values()]
PARTS = ['{"', "|", "-|", "| a |", " ===", "# a", "$ a", "\r", "%|", "\x1b[", "a: 1", "```", "<td>", "0: ", "\n"]
KINDS: dict[str, Callable[[random.Random, int], str]] = {
    "spaces": lambda draw, size: " " * size,
    "headers": lambda draw, size: HEADER * (size // 51),
    "long prefixes": lambda draw, size: "".join(f"{draw.random()} " * 24 + HEADER for _ in range(size // 500)),
    "6,000 digits": lambda draw, size: CONSOLE.replace(
        "\nConcurrency", "\nFailed requests: " + "9" * 6000 + "\nConcurrency"
    ),
    "controls": lambda draw, size: CONSOLE.replace("\nConcurrency", "\n\x07\x1b[2J\u202e\x9b: 1\nConcurrency"),
    "a deep setting": lambda draw, size: f'{{"backend": {"[" * 700}{"]" * 700},{SAVED[1:]}',
    "thousands of figures": lambda draw, size: (
        "{" + ",".join(f'"p{n % 100}.{n}_ttft_ms": {n}' for n in range(1500)) + "," + SAVED[1:]
    ),
    "a number each line of an object": lambda draw, size: 'x\n{"a":[\n"a",\n' + "1\n" * (size // 2),
    "a rule of a table that does not end": lambda draw, size: "x\n" + "+-" * (size // 2) + "x |\n",
    "parts of everything": lambda draw, size: "x\n" + "".join(draw.choices(PARTS, k=size // 3)) + "\n" + CONSOLE,
    "a table's rows": lambda draw, size: CSV + "Other Metric,1\n" * (size // 15),
    "a table without end": lambda draw, size: "Metric,avg\n" + "x,1\n" * (5 << 18),
    "elements that do not end": lambda draw, size: "<html><table>" + "<tr><td>" * (size // 8),
    "tags that do not end": lambda draw, size: "<html>" + "<h1 " * (size * 5),
    "blocks that do not end": lambda draw, size: "concurrency: 1\nelapsed_time: 2\n" * (size // 4),
}
SMALL = 40_000
"""Bytes; a pattern with quadratic time needs 9 s for so many spaces."""


def odd_value(draw: random.Random) -> Any:
    deep: Any = 1
    for _ in range(draw.choice([3, 70, 400])):
        deep = [deep] if draw.random() < 0.5 else {"a": deep}
    numbers = [-1, 10**400, 1e308, float("nan"), float("inf")]
    return draw.choice([None, True, *numbers, "x", "", [], {}, [1], deep, "\ud800", "x" * 100_000, {"successful": 3}])


def mutated(draw: random.Random) -> str:
    """A result with one to four lines, characters or values of another kind."""
    text = draw.choice(DAMAGED)
    if text.startswith("{") and draw.random() < 0.5:
        document = json.loads(text.splitlines()[0] if text.count("\n{") else text)
        place = document
        while (
            isinstance(
                inner := place[key := draw.choice(list(place) if isinstance(place, dict) else range(len(place)))],
                dict | list,
            )
            and inner
            and draw.random() < 0.7
        ):
            place = inner
        place[key] = odd_value(draw)
        return json.dumps(document)
    lines = text.splitlines(keepends=True)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(lines))
        line = lines[at]
        column = draw.randrange(len(line) + 1)
        lines[at] = draw.choice(
            [
                "",
                line * 2,
                line[:column],
                line[:column] + draw.choice([*PARTS, "9", "-", ".", ",", "N/A"]) + line[column:],
                lines[draw.randrange(len(lines))],
            ]
        )
    return "".join(lines)


def check(text: str, log: Path) -> None:
    """Reads it, or refuses it in clear errors with file and line."""
    log.write_bytes(text.encode(errors="surrogatepass"))
    found = list(scan_file(log))
    assert len(found) <= 101 or all(isinstance(each, Block) for each in found)
    for each in found:
        if isinstance(each, ReadError):
            message = str(each)
            assert re.match(rf"{re.escape(str(log))}(:\d+)?: ", message)
            assert message.isprintable() and len(message) <= 1100
        else:
            assert json.dumps([each.metrics(), each.settings, each.tool_version, each.formulas], allow_nan=False)


def test_hostile_logs_are_read_or_refused(tmp_path: Path) -> None:
    for kind, made in KINDS.items():
        check(made(random.Random(kind), SMALL), tmp_path / "log")


def test_damaged_logs_are_read_or_refused(tmp_path: Path) -> None:
    for seed in range(300):
        check(mutated(random.Random(seed)), tmp_path / "log")


def test_a_device_is_no_log() -> None:
    (found,) = scan_file(Path("/dev/zero"))
    assert str(found) == "/dev/zero: is a device, not a log"
