"""YAML made to do harm, from a seeded generator: each ends in one clear error with file and line, in little time."""

from __future__ import annotations

import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from servelab.core.errors import ConfigError
from servelab.core.yaml_file import MOST_BYTES, MOST_LEVELS, read_yaml

ROOT = Path(__file__).parents[2]


def _bomb(draw: random.Random) -> str:
    levels, width = draw.randrange(8, 30), draw.randrange(8, 20)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


KINDS: dict[str, tuple[Callable[[random.Random], str | bytes], str]] = {
    "flow lists": (lambda draw: "a: " + "[" * draw.randrange(100, 3_000_000), "levels deep"),
    "keys of keys": (lambda draw: "? " * draw.randrange(100, 900_000) + "a", "levels deep"),
    "aliases of aliases": (_bomb, "write it out"),
    "an alias of itself": (lambda draw: f"a: &a [{'x, ' * draw.randrange(9)}{{b: *a}}]", "write it out"),
    "digits": (lambda draw: "a: " + "9" * draw.randrange(4301, 90_000), "quote it if it is text"),
    "no day": (lambda draw: f"a: 2026-{draw.randrange(13, 99)}-45", "quote it if it is text"),
    "no number": (lambda draw: draw.choice(["a: !!int x", "a: !!int ''", "a: !!float x"]), "quote it if it is text"),
    "no UTF-8": (lambda draw: b"a: b\nc: " + bytes([draw.randrange(0x80, 0xC0)]), "not UTF-8"),
    "a list as a key": (lambda draw: "? [a, b]\n: c", "a key is a list"),
    "code": (lambda draw: f"a: !!python/object/apply:os.system ['{draw.random()}']", "could not determine"),
    "nul": (lambda draw: "a: b\0", "control characters are not allowed"),
    "large": (lambda draw: "a: " + "x" * (MOST_BYTES + draw.randrange(1, 99)), "larger than 16 MiB"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_yaml_is_one_error(kind: str, tmp_path: Path) -> None:
    made, says = KINDS[kind]
    content = made(random.Random(kind))
    file = tmp_path / "study.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = time.process_time()
    with pytest.raises(ConfigError) as raised:
        read_yaml(file)
    assert time.process_time() - before < 20, "a guard against a hang; the work is bounded by the file's size"
    message = str(raised.value)
    assert says in message
    assert re.match(rf"{re.escape(str(file))}(:\d+)?: ", message)
    assert message.isprintable() and len(message) < 400


def test_deep_yaml_does_not_end_the_interpreter(tmp_path: Path) -> None:
    """Its parser calls itself in C, where a stack that is used up is a crash: tried with a small stack."""
    file = tmp_path / "study.yaml"
    file.write_text("a: " + "[" * 200_000)
    code = "import sys; from pathlib import Path; from servelab.core.cli import run\n"
    code += "from servelab.core.yaml_file import read_yaml; run(lambda: read_yaml(Path(sys.argv[1])))"

    def small_stack() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))

    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        env={"PYTHONPATH": str(ROOT / "scripts")},
        capture_output=True,
        text=True,
        preexec_fn=small_stack,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {file}:1: not valid YAML: nested more than {MOST_LEVELS} levels deep\n"


def test_ordinary_anchors_numbers_and_dates_stay(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    deep = "[" * (MOST_LEVELS - 1) + "1" + "]" * (MOST_LEVELS - 1)
    file.write_text(f"a: &a [1, 0x1f, 1e3, .inf, 2026-01-02, on, true]\nb: [*a, *a]\nc: {deep}\nd: {2**1000}\n")
    content = read_yaml(file)
    assert content["b"] == [content["a"], content["a"]]
    assert content["a"][:2] == [1, 31] and content["a"][-2:] == ["on", True]
    assert content["d"] == 2**1000
