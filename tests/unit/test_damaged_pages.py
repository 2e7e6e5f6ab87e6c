"""Damaged pages and logs, made by a generator: through draft and audit without a traceback, and with nothing lost."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import made_pages as made
import pytest
from test_recorded import search

from servelab.core.errors import ConfigError
from servelab.metrics.tables import schemas
from servelab.recorded.audit import Evidence
from servelab.recorded.audit.claims_table import audit
from servelab.recorded.draft.drafted import draft
from servelab.recorded.draft.writing import write_draft
from servelab.recorded.logs import Logs
from servelab.study.recorded.study import load_recorded

RECORDED = Path(__file__).parents[2] / "config/recorded"
HEAD = "= Serving Benchmark Result ="


def truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) // 4, len(content))]


def swap_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(max(2, len(content) // 1500)):
        one, other = chance.randrange(len(changed)), chance.randrange(len(changed))
        changed[one], changed[other] = changed[other], changed[one]
    return bytes(changed)


def swap_digits(content: bytes, chance: random.Random) -> bytes:
    digits = [at for at, each in enumerate(content) if chr(each).isdigit()]
    changed = bytearray(content)
    for at in chance.sample(digits, k=min(12, len(digits))):
        changed[at] = ord(chance.choice("0123456789"))
    return bytes(changed)


def cut_json(content: bytes, chance: random.Random) -> bytes:
    """A document of the same figures in a fence, cut off, before the rest of the page."""
    document = json.dumps(
        {"duration": 50.0, "completed": 200, "total_token_throughput": 5120.0, "nested": [[1, {}]] * 9}
    )
    return b"```json\n" + document[: chance.randrange(1, len(document))].encode() + b"\n```\n" + content


def nest_deeply(content: bytes, chance: random.Random) -> bytes:
    many = chance.randrange(1_000, 50_000)
    opening = chance.choice(["[", '{"a": ', "<div><details>", "> ", "* "])
    return content + b"\n```\n" + (opening * many).encode() + b"\n```\n" + content[:200]


def mix_encodings(content: bytes, chance: random.Random) -> bytes:
    encodings = ("utf-8", "latin-1", "utf-16-le", "cp1252")
    lines = content.decode("utf-8", "replace").split("\n")
    return b"\n".join(
        (line + "é").encode(chance.choice(encodings), "replace") if chance.random() < 0.05 else line.encode()
        for line in lines
    )


def repeat_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    first = chance.randrange(len(lines))
    part = lines[first : first + chance.randrange(1, 40)]
    return b"\n".join(lines[:first] + part * chance.randrange(2, 4) + lines[first:])


DAMAGES = (truncate, swap_bytes, swap_digits, cut_json, nest_deeply, mix_encodings, repeat_lines)
CASES = [(damage, seed) for damage in DAMAGES for seed in range(3)]
Damage = Callable[[bytes, random.Random], bytes]


def audited(folder: Path) -> list[dict[str, object]]:
    """The findings on a study, decided as the workflow does."""
    study = load_recorded(folder)
    _, _, decisions, winner = search(study, folder)
    chosen = {stage: incumbent for stage, (_, incumbent) in decisions.items()}
    command = study.candidates[winner].command_on(study.objective.on)
    found = audit(Evidence(study, Logs(study, folder), chosen, command))
    assert found.schema.equals(schemas.CLAIMS)
    return found.to_pylist()


@pytest.mark.parametrize(("damage", "seed"), CASES)
def test_a_damaged_page_is_drafted_and_audited_and_loses_nothing(tmp_path: Path, damage: Damage, seed: int) -> None:
    chance = random.Random(f"{damage.__name__} {seed}")
    page = tmp_path / ("page.html" if seed == 2 else "page.md")
    whole = made.page() if seed == 2 else made.markdown()
    page.write_bytes(damage(whole.encode(), chance))
    text = page.read_bytes().decode("utf-8", "replace")
    try:
        write_draft(draft(page, "drafted"), tmp_path / "drafted")
        found = audited(tmp_path / "drafted")
    except ConfigError as error:
        assert "\n" not in str(error)
        unread = re.search(r"no result of a load client found .* (\d+) results that cannot be read", str(error))
        assert unread and int(unread[1]) >= text.count(HEAD)
        return
    kept = [path.read_text(errors="replace") for path in (tmp_path / "drafted").rglob("*.*") if path.suffix != ".yaml"]
    unread = (tmp_path / "drafted/unplaced.md").read_text().count("cannot be read")
    assert sum(each.count(HEAD) for each in kept) + unread >= text.count(HEAD)
    study = load_recorded(tmp_path / "drafted")
    listed = [each for each in found if each["source"] == "publication" and each["rule"] != "like_with_like"]
    assert len(listed) >= len({(each.kind, each.line) for each in study.claims if each.kind != "order"})


@pytest.mark.parametrize(("damage", "seed"), CASES[::3])
def test_a_damaged_log_is_a_finding_and_the_others_are_computed(tmp_path: Path, damage: Damage, seed: int) -> None:
    chance = random.Random(f"{damage.__name__} {seed}")
    folder = shutil.copytree(RECORDED / "qwen3-14b-h100", tmp_path / "qwen3-14b-h100")
    logs = sorted((folder / "logs").iterdir())
    damaged = chance.sample(logs, k=4)
    for log in damaged:
        log.write_bytes(damage(log.read_bytes(), chance))
    study = load_recorded(folder)
    read = Logs(study, folder)
    broken = {each.file for name, workload, _ in study.log_files() for each in read.broken(name, workload)}
    assert broken <= {log.name for log in damaged}
    found = audited(folder)
    assert {each["where"] for each in found if each["rule"] == "broken_log"} == broken
    for each in found:
        if each["rule"] == "figure" and each["verdict"] == "unproven":
            names = study.candidates[str(each["candidate"])].logs[str(each["workload"])]
            assert {log.name for log in damaged} & set(names)
