"""A damaged result never gives a silently wrong figure.

What that means: whatever happened to the text, each figure read has the value it had before, unless the damage was to
that figure's own digits and no other figure of the block determines it. Otherwise the block is refused, with file and
line, or the figure is missing. A digit of a figure that others determine, and that shows in their printed digits, is
always found. What nobody can find: other digits of a latency, of a percentile's name, of a count that stands alone.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from test_readers import CONSOLE, SAMPLES, console

from servelab.recorded.readers import Block, ReadError, scan_file

DETERMINED = {
    "requests_completed",
    "duration_s",
    "input_tokens",
    "output_tokens",
    "input_tokens_per_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "accepted_tokens",
    "acceptance_rate_percent",
}
OWN_RATES = [name for name in CONSOLE if name != "gpustack.txt"]
"""Those whose tokens per second are tokens / duration."""


def read(text: str, folder: Path) -> list[Block | ReadError]:
    log = folder / "log"
    log.write_text(text, encoding="utf-8")
    return list(scan_file(log))


def whole(name: str, folder: Path) -> Block:
    (block,) = read(console(name), folder)
    assert isinstance(block, Block)
    return block


def wrong_lines(found: list[Block | ReadError], good: Block, shift: int = 0) -> set[str]:
    """Figures read that were not there, or had another value."""
    before = {(figure.metric, figure.statistic): figure.value for figure in good.figures}
    wrong = set()
    for block in found:
        if isinstance(block, ReadError):
            assert re.match(r".*log(:\d+)?: ", str(block))
            continue
        for figure in block.figures:
            key = (figure.metric, figure.statistic)
            if key not in before or before[key] != figure.value:
                wrong.add(" ".join(key))
    return wrong


@pytest.mark.parametrize("name", CONSOLE)
def test_cut_anywhere(name: str, tmp_path: Path) -> None:
    text = console(name)
    start, end = text.index("=" * 12), text.rindex("=" * 50) + 50
    places = {*range(start + 30, end, 29), *(match.start() for match in re.finditer("\n", text[:end])), end - 1}
    for place in sorted(place for place in places if place > start + 30):
        (found,) = read(text[:place], tmp_path)
        assert isinstance(found, ReadError), place


@pytest.mark.parametrize("name", CONSOLE)
def test_lines_dropped_doubled_or_moved(name: str, tmp_path: Path) -> None:
    good = whole(name, tmp_path)
    lines = console(name).splitlines(keepends=True)
    for index, line in enumerate(lines):
        for damaged in (
            [*lines[:index], *lines[index + 1 :]],
            [*lines[:index], line, *lines[index:]],
            [*lines[:index], *lines[index + 1 : index + 2], line, *lines[index + 2 :]],
            [*lines[:index], *lines[index + 5 :]],
        ):
            assert not wrong_lines(read("".join(damaged), tmp_path), good), (index, line)


@pytest.mark.parametrize("name", CONSOLE)
def test_lines_in_any_order(name: str, tmp_path: Path) -> None:
    good = whole(name, tmp_path)
    lines = console(name).splitlines(keepends=True)
    start = next(index for index, line in enumerate(lines) if "Serving" in line) + 1
    end = next(index for index, line in enumerate(lines) if "=" * 50 in line)
    middle = lines[start:end]
    for seed in range(20):
        random.Random(seed).shuffle(middle)
        (found,) = read("".join([*lines[:start], *middle, *lines[end:]]), tmp_path)
        assert isinstance(found, Block)
        assert sorted(found.figures[i][:3] for i in range(len(found.figures))) == sorted(f[:3] for f in good.figures)


@pytest.mark.parametrize("name", CONSOLE)
def test_units_swapped(name: str, tmp_path: Path) -> None:
    good = whole(name, tmp_path)
    lines = console(name).splitlines(keepends=True)
    units = ["(ms)", "(s)", "(us)", "(tok/s)", "(req/s)", "(tok/min)", "(%)"]
    swapped = 0
    for index, line in enumerate(lines):
        for old in units:
            for new in (unit for unit in units if unit != old and old in line):
                damaged = [*lines[:index], line.replace(old, new), *lines[index + 1 :]]
                assert not wrong_lines(read("".join(damaged), tmp_path), good), line
                swapped += 1
    assert swapped > 60


@pytest.mark.parametrize("name", OWN_RATES)
def test_a_changed_digit_of_a_determined_figure_is_found(name: str, tmp_path: Path) -> None:
    """Where it changes the figure by 5 % or more: less may lie within what the other printed digits leave open."""
    good = whole(name, tmp_path)
    lines = console(name).splitlines(keepends=True)
    changed = 0
    for figure in good.figures:
        if figure.metric not in DETERMINED:
            continue
        line = lines[figure.line - 1]
        number = re.search(r"[\d.]+(?=\s*$)", line)
        assert number is not None
        places = [number.start() + match.start() for match in re.finditer(r"\d", number[0])][:2]
        for place in places:
            for digit in "0123456789":
                damaged = line[:place] + digit + line[place + 1 :]
                if abs(float(damaged[number.start() : number.end()]) / float(number[0]) - 1) < 0.05:
                    continue
                (found,) = read("".join([*lines[: figure.line - 1], damaged, *lines[figure.line :]]), tmp_path)
                assert isinstance(found, ReadError), damaged
                changed += 1
    assert changed > 50


@pytest.mark.parametrize("name", CONSOLE)
def test_a_line_that_lost_its_end(name: str, tmp_path: Path) -> None:
    """A whole number that stands alone may lose its last digits unseen; nothing else may."""
    good = whole(name, tmp_path)
    lines = console(name).splitlines(keepends=True)
    alone = {
        "peak_concurrency value",
        "input_text_tokens value",
        "output_tokens_retokenized value",
    }
    for index, line in enumerate(lines):
        end = len(line.rstrip())
        for length in [*range(0, end - 12, 7), *range(max(0, end - 12), end)]:
            damaged = [*lines[:index], line[:length] + "\n", *lines[index + 1 :]]
            assert wrong_lines(read("".join(damaged), tmp_path), good) <= alone, line[:length]


@pytest.mark.parametrize("name", CONSOLE)
@pytest.mark.parametrize("seed", range(100))
def test_random_damage(name: str, seed: int, tmp_path: Path) -> None:
    good = whole(name, tmp_path)
    lines = console(name).splitlines(keepends=True)
    chance = random.Random(f"{name} {seed}")
    index = chance.randrange(len(lines))
    line = lines[index]
    place = chance.randrange(len(line))
    other = chance.choice(["", " ", "x", ".", ",", "-", "%", ":", "\n", "\r", "=", "(", "\x1b[0m", "7", "N/A"])
    damaged = line[:place] + other + line[place + chance.choice([0, 1, 1, 3]) :]
    found = read("".join([*lines[:index], damaged, *lines[index + 1 :]]), tmp_path)
    own = {f"{figure.metric} {figure.statistic}" for figure in good.figures if figure.line == index + 1}
    wrong = wrong_lines(found, good)
    digits = re.sub(r"\D", "", line) != re.sub(r"\D", "", damaged.replace("\x1b[0m", ""))
    renamed = {name for name in wrong if re.search(r" p\d|acceptance_at_\d", name)}
    assert wrong <= (own | renamed if digits else set()), damaged


@pytest.mark.parametrize("name", ["vllm-0.32.json", "guidellm-0.8.1.json", "aiperf-0.13.json"])
def test_json_cut_anywhere(name: str, tmp_path: Path) -> None:
    text = console(name)
    for place in range(1, len(text.rstrip()), max(1, len(text) // 200)):
        (found,) = read(text[:place], tmp_path)
        assert isinstance(found, ReadError)


def test_table_cut_anywhere(tmp_path: Path) -> None:
    good = whole("aiperf-0.13.csv", tmp_path)
    text = (SAMPLES / "aiperf-0.13.csv").read_bytes().decode()
    for place in range(10, len(text), 13):
        assert not wrong_lines(read(text[:place], tmp_path), good)
    for index, line in enumerate(lines := text.splitlines(keepends=True)):
        for kept in range(0, len(line), 5):
            damaged = "".join([*lines[:index], line[:kept] + "\r\n", *lines[index + 1 :]])
            assert not wrong_lines(read(damaged, tmp_path), good), line[:kept]
