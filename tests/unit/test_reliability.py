"""docs/reliability.md: enough faults of each part, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| \d+ \|.*$", TEXT, re.M)]
PARTS = ("Engine", "Measuring process", "Load client", "Cluster", "Files", "Configuration", "Neighbours")


def test_there_are_sixty_faults_of_all_parts():
    assert len(ROWS) >= 60
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, len(ROWS) + 1)]
    assert {len(row) for row in ROWS} == {7} and all(all(row) for row in ROWS)
    sections = re.split(r"^## ", TEXT, flags=re.M)[1:]
    assert tuple(section.partition("\n")[0] for section in sections) == PARTS
    assert all(re.search(r"^\| \d+ \|", section, re.M) for section in sections)


def test_nothing_is_lost_cached_wrongly_or_left_and_each_fault_is_another():
    assert {cell for row in ROWS for cell in row[3:5]} <= {"nothing", "–"}
    assert {row[5] for row in ROWS} <= {"nothing", "–"}
    tests = [row[6] for row in ROWS]
    assert len(set(tests)) == len(tests)


def test_every_test_that_is_named_exists():
    for row in ROWS:
        named = re.fullmatch(r"`(?P<file>\w+/\w+\.py)::(?P<test>test_\w+)(?:\[(?P<case>[^\]]+)\])?`", row[6])
        assert named, row[6]
        source = (ROOT / "tests" / named["file"]).read_text(encoding="utf-8")
        functions = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
        assert named["test"] in functions, row[6]
        assert named["case"] is None or named["case"] in source, row[6]
