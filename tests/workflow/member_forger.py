"""Forges archives without knowing the workflow: any member, changed in any way that its format allows.

The other forger (`forger.py`) has classes of things worth forging. This one draws a part of the archive, a member of it
and a change, so that it also touches what nobody thought of. Every hash agrees afterwards.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from forger import Forgery, Members, describe, own

from servelab.archive.layout import MANIFEST

Change = Callable[[random.Random, bytes], bytes]


def places(value: Any, inside: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Path of every part of a JSON value but the run's seal, which is made again."""
    found = [inside] if inside else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        if key != "seal":
            found += places(part, (*inside, key))
    return found


def other(draw: random.Random, value: Any) -> Any:
    """Another value of the same type, often near."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice([1, -1, 1000])
    if isinstance(value, float):
        return draw.choice([value * 1.001 + 1e-6, -value - 1.0, value + 1.0])
    if isinstance(value, str):
        return draw.choice([value + "x", value[:-1] + "~" if value else "x", value.upper() + "!"])
    if isinstance(value, list):
        return draw.choice([value[1:], [*value, *value[:1]], value[::-1]]) if value else ["x"]
    return {"x": 1} if value is None else None


def json_part(draw: random.Random, content: bytes) -> bytes:
    value = json.loads(content)
    *inside, key = draw.choice(places(value))
    part = value
    for step in inside:
        part = part[step]
    if draw.random() < 0.2:
        del part[key]
    else:
        part[key] = other(draw, part[key])
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def json_key(draw: random.Random, content: bytes) -> bytes:
    value = json.loads(content)
    if not isinstance(value, dict):
        return content
    return json.dumps({**value, f"more_{draw.randrange(99)}": draw.choice([1, "x", None])}, indent=2).encode() + b"\n"


def cell(draw: random.Random, content: bytes) -> bytes:
    table = pq.read_table(io.BytesIO(content))
    if not table.num_rows or not table.num_columns:
        return content
    column, row = draw.randrange(table.num_columns), draw.randrange(table.num_rows)
    values = table.column(column).to_pylist()
    values[row] = other(draw, values[row]) if values[row] is not None else None
    try:
        changed = pa.array(values, table.schema.field(column).type)
    except (pa.ArrowException, TypeError, ValueError):
        return content
    return parquet(table.set_column(column, table.schema.field(column), changed))


def rows(draw: random.Random, content: bytes) -> bytes:
    table = pq.read_table(io.BytesIO(content))
    if table.num_rows < 2:
        return content
    order = list(range(table.num_rows))
    place = draw.randrange(table.num_rows)
    change = draw.choice(["fewer", "twice", "other order"])
    if change == "fewer":
        del order[place]
    elif change == "twice":
        order.insert(place, place)
    else:
        draw.shuffle(order)
    return parquet(table.take(order))


def columns(draw: random.Random, content: bytes) -> bytes:
    table = pq.read_table(io.BytesIO(content))
    name = draw.choice(table.column_names)
    if draw.random() < 0.5:
        return parquet(table.drop_columns([name]))
    return parquet(table.append_column(f"more_{draw.randrange(99)}", table[name]))


def parquet(table: pa.Table) -> bytes:
    output = io.BytesIO()
    pq.write_table(table, output)
    return output.getvalue()


def line(draw: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    change = draw.choice(["fewer", "twice", "swapped"])
    if change == "fewer":
        del lines[place]
    elif change == "twice":
        lines.insert(place, lines[place])
    else:
        to = draw.randrange(len(lines))
        lines[place], lines[to] = lines[to], lines[place]
    return b"".join(lines)


def byte(draw: random.Random, content: bytes) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << draw.randrange(7))]) + content[place + 1 :]


def end(draw: random.Random, content: bytes) -> bytes:
    return draw.choice([content[: draw.randrange(len(content))], content + b"\n", content + content, b""])


ANY: list[Change] = [byte, end]
BY_NAME: dict[str, list[Change]] = {
    ".json": [json_part, json_part, json_part, json_key, line],
    ".parquet": [cell, cell, cell, rows, columns],
}
TEXT: list[Change] = [line, line, line]
AREAS = ("{own}", "results/runs/", "results/workloads/", "results/logs/", "provenance/", "recipe/", "workflow/", "")
"""Parts of an archive, each as often as the others; the last is whatever is in none of them."""


def members_of(area: str, members: Members) -> list[str]:
    folders = [each.format(own=own(members)) for each in AREAS if each]
    wanted = area.format(own=own(members))
    inside = [name for name in members if name.startswith(wanted)] if wanted else []
    return sorted(inside or [name for name in members if not name.startswith(tuple(folders))])


def forge_any(original: Members, number: int) -> Forgery:
    """Forgery of that number: a member changed, removed, exchanged with another, or there a second time."""
    draw, area = random.Random(f"any {number}"), AREAS[number % len(AREAS)]
    names = members_of(area, original)
    while True:
        members = dict(original)
        name = draw.choice(names)
        alike = [each for each in names if each != name and each.rpartition(".")[2] == name.rpartition(".")[2]]
        how = draw.choice(["changed"] * 7 + ["removed", "exchanged", "added"])
        if how == "removed" and name != MANIFEST:
            del members[name]
        elif how == "exchanged" and alike:
            with_other = draw.choice(alike)
            members[name], members[with_other] = members[with_other], members[name]
        elif how == "added":
            stem, dot, ending = name.rpartition(".")
            members[f"{stem}-{draw.randrange(99)}{dot}{ending}" if dot else f"{name}{draw.randrange(99)}"] = members[
                name
            ]
        elif members[name]:
            ending = f".{name.rpartition('.')[2]}"
            how = draw.choice([*ANY, *BY_NAME.get(ending, TEXT)])
            members[name] = how(draw, members[name])
            how = how.__name__
        if members != original:
            break
    describe(members, {name})
    touched = {each for each in original.keys() | members.keys() if original.get(each) != members.get(each)}
    return Forgery(f"{area or 'top'} {how}", members, touched)
