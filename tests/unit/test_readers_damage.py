"""A damaged result never gives a silently wrong figure.

What that means: whatever happened to the text, each figure read has the value it had before, unless the damage was to
that figure's own digits and no other figure of the block determines it. Otherwise the block is refused, with file and
line, or the figure is missing. A digit of a figure that others determine, and that shows in their printed digits, is
always found. What nobody can find: other digits of a latency, of a percentile's name, of a count that stands alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_readers import PRINTED, SAMPLES, console, core, figures

from servelab.recorded.readers import Block, ReadError, read_file, scan_file

DETERMINED = {"requests_completed", "duration_s", "input_tokens", "output_tokens", "input_tokens_per_s"}
DETERMINED |= {"output_tokens_per_s", "total_tokens_per_s"}
NAMES = ["vllm-0.32.txt", "gpustack.txt", "evalscope-1.14.txt", "aisbench-3.1.txt", "lmdeploy.txt", "guidellm"]
BLOCKS = [name for name, path in PRINTED.items() if "Serving Benchmark Result" in path.read_text()]
OWN_RATES = [name for name in BLOCKS if name != "gpustack.txt"]
"""Those whose tokens per second are tokens / duration."""


def read(text: str, folder: Path) -> list[Block | ReadError]:
    log = folder / "log"
    log.write_text(text, encoding="utf-8", newline="")
    return list(scan_file(log))


def wrong(found: list[Block | ReadError], name: str) -> set[str]:
    """Figures read that the whole result does not have, or not with this value."""
    good = {item for block in read_file(PRINTED.get(name, SAMPLES / name)) for item in figures(block).items()}
    for each in found:
        assert isinstance(each, Block) or re.match(r".*log(:\d+)?: ", str(each))
    return {
        key
        for each in found
        if isinstance(each, Block)
        for key, value in figures(each).items()
        if (key, value) not in good
    }


@pytest.mark.parametrize(
    "name", [*NAMES, "vllm-0.32.json", "guidellm-0.8.1.json", "aiperf-0.13.json", "aiperf-0.13.csv"]
)
def test_cut_anywhere(name: str, tmp_path: Path) -> None:
    text = core(name) if name in NAMES else (SAMPLES / name).read_bytes().decode().rstrip()
    for place in range(1, len(text), max(1, len(text) // 100)):
        found = read(text[:place], tmp_path)
        assert not wrong(found, name), place
        if name in BLOCKS or name.endswith("json"):
            assert isinstance(found[0], ReadError) or place > text.rindex("=" * 50)


@pytest.mark.parametrize("name", NAMES)
def test_lines_dropped_doubled_moved_or_between(name: str, tmp_path: Path) -> None:
    lines = core(name).splitlines(keepends=True)
    for index, line in enumerate(lines):
        for damaged in (
            [*lines[:index], *lines[index + 1 :]],
            [*lines[:index], line, *lines[index:]],
            [*lines[:index], *lines[index + 1 : index + 2], line, *lines[index + 2 :]],
            [*lines[:index], *lines[index + 5 :]],
            [*lines[:index], "INFO 127.0.0.1 - 200 OK 12.34\n", *lines[index:]],
            [*lines[:index], line[: len(line) // 2] + "\n", *lines[index + 1 :]],
        ):
            assert not wrong(read("".join(damaged), tmp_path), name), (index, line)


@pytest.mark.parametrize("name", OWN_RATES)
def test_a_changed_digit_of_a_determined_figure_is_found(name: str, tmp_path: Path) -> None:
    """Where it changes the figure by 5 % or more: less may lie within what the other printed digits leave open."""
    lines = console(name).splitlines(keepends=True)
    changed = 0
    for figure in (each for each in read_file(PRINTED[name])[0].figures if each.metric in DETERMINED):
        line = lines[figure.line - 1]
        number = re.search(r"[\d.]+(?=\s*$)", line)
        assert number is not None
        for place in [number.start() + match.start() for match in re.finditer(r"\d", number[0])][:2]:
            for digit in "0123456789":
                damaged = line[:place] + digit + line[place + 1 :]
                if abs(float(damaged[number.start() : number.end()]) / float(number[0]) - 1) < 0.05:
                    continue
                (found,) = read("".join([*lines[: figure.line - 1], damaged, *lines[figure.line :]]), tmp_path)
                assert isinstance(found, ReadError), damaged
                changed += 1
    assert changed > 50
