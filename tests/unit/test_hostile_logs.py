"""Hostile logs: each is read or ends in clear errors with file and line; never a traceback, and in bounded memory."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked_script import run_forked
from hostile_logs import KINDS, SAMPLES, SERVER_LINE, form_of

from servelab.recorded.anything import write_table
from servelab.recorded.readers import Block, ReadError, read_file, scan_file
from servelab.recorded.readers.lines import CUT, MOST_LINE, visible_lines

ROOT = Path(__file__).parents[2]
SMALL = 40_000
"""Bytes; a pattern with quadratic time needs 9 s for so many spaces."""


def written(kind: str, seed: int, size: int, folder: Path) -> Path:
    content = KINDS[kind](random.Random(f"{kind} {seed}"), size)
    log = folder / "log"
    log.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    return log


def test_there_are_enough() -> None:
    assert len(KINDS) >= 60


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_log_is_read_or_refused(kind: str, seed: int, tmp_path: Path) -> None:
    log = written(kind, seed, SMALL, tmp_path)
    found = list(scan_file(log))
    assert (found and len(found) <= 101) or all(isinstance(each, Block) for each in found)
    for each in found:
        if isinstance(each, ReadError):
            message = str(each)
            assert re.match(rf"{re.escape(str(log))}(:\d+)?: ", message)
            assert message.isprintable() and len(message) <= 1100
        else:
            plain = json.dumps([each.metrics(), each.settings, each.tool_version], allow_nan=False)
            assert json.loads(plain)
    write_table([log], tmp_path / "table.parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_log_gives_the_command_line_no_traceback(kind: str, tmp_path: Path) -> None:
    done = run_forked("read_log.py", written(kind, 3, 2000, tmp_path))
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert all(json.loads(line)["tool"] for line in done.stdout.splitlines())
    assert all(line.startswith(("error: ", "note: ")) for line in done.stderr.splitlines())
    assert (done.returncode == 1) == ("error: " in done.stderr)


@pytest.mark.parametrize(
    "name", [path.name for path in SAMPLES.glob("*.*") if path.suffix in (".txt", ".json", ".csv")]
)
def test_sound_logs_are_read_as_before_behind_thousands_of_other_lines(name: str, tmp_path: Path) -> None:
    """Also across the parts in which a file is read."""
    alone = read_file(SAMPLES / name)
    if name.endswith(".txt"):
        text = SERVER_LINE * 6000 + (SAMPLES / name).read_text()
    else:
        text = "\n" * 3000 + (SAMPLES / name).read_text()
    if name.endswith(".csv"):
        text = text.lstrip("\n")
    (tmp_path / "log").write_text(text, encoding="utf-8", newline="")
    assert [block.figures and block.metrics() for block in read_file(tmp_path / "log")][-1] == alone[-1].metrics()


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


def test_a_long_line_is_cut_and_the_lines_after_it_keep_their_numbers() -> None:
    parts = ["a\n", *["x" * 70_000] * 40, "\nb\n", "y" * MOST_LINE, "\n", "c"]
    lines = list(visible_lines(parts))
    assert [(number, len(line)) for number, line in lines] == [
        (1, 1),
        (2, MOST_LINE + 1),
        (3, 1),
        (4, MOST_LINE),
        (5, 1),
    ]
    assert lines[1][1].endswith(CUT)


def test_a_progress_bar_drawn_for_hours_hides_no_figure(tmp_path: Path) -> None:
    text = "".join(f"\r {n % 101}%|#####     | 5/10 [00:01<00:01,  5.00it/s]" for n in range(100_000))
    (tmp_path / "log").write_text(text + "\n" + (SAMPLES / "vllm-0.32.txt").read_text(), newline="")
    (found,) = read_file(tmp_path / "log")
    assert found.metrics() == read_file(SAMPLES / "vllm-0.32.txt")[0].metrics()


def test_an_object_of_many_short_lines_is_read_within_a_text(tmp_path: Path) -> None:
    document = json.loads((SAMPLES / "vllm-0.32.json").read_text())
    document["input_lens"] = [1000 + number % 1000 for number in range(40_000)]
    (tmp_path / "log").write_text("a server's line\n" * 100 + json.dumps(document, indent=4) + "\n")
    (found,) = read_file(tmp_path / "log")
    assert found.metrics() == read_file(SAMPLES / "vllm-0.32.json")[0].metrics()


@pytest.mark.parametrize("name", ["llama-bench.txt", "evalscope-0.x.txt", "evalscope-1.14.txt", "trtllm-bench.txt"])
def test_bars_drawn_between_the_rows_of_a_table_do_not_end_it(name: str, tmp_path: Path) -> None:
    bar = "\r 50%|#####     | 5/10 [00:01<00:01,  5.00it/s]\r"
    lines = (SAMPLES / name).read_text().splitlines()
    (tmp_path / "log").write_text("".join(f"{bar}{line}\n" for line in lines), newline="")
    assert [block.metrics() for block in read_file(tmp_path / "log")] == [
        block.metrics() for block in read_file(SAMPLES / name)
    ]


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    (tmp_path / "log").write_text((SAMPLES / "vllm-0.32.txt").read_text() * 500)
    for after in ("head -n 1", "head -c 1", "true"):
        command = f"{sys.executable} {ROOT}/scripts/read_log.py {tmp_path}/log | {after}; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=True, env={"PYTHONPATH": f"{ROOT}/scripts"}
        )
        assert (done.stdout.rstrip("\n")[-3:], done.stderr) == ("141", "")


def test_a_log_through_a_pipe_is_read() -> None:
    command = f"{sys.executable} {ROOT}/scripts/read_log.py <(cat {SAMPLES}/vllm-0.32.txt)"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, env={"PYTHONPATH": f"{ROOT}/scripts"}
    )
    assert json.loads(done.stdout)["tool"] == "vllm-bench"


def test_a_device_is_no_log() -> None:
    (found,) = scan_file(Path("/dev/zero"))
    assert str(found) == "/dev/zero: is a device, not a log"


def test_forms_are_told_apart() -> None:
    assert {form_of(KINDS[kind](random.Random(0), 100)) for kind in KINDS} == {"console", "json", "csv"}
