"""Archives made to do harm, from a seeded generator: zips of a wrong form, and zips of the right form with odd content.

Unlike `hostile_archives`, where each kind was written by hand with what its error says, these are drawn: a kind and a
seed give one archive.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from made_zip import REGULAR, File, deflated, made_zip

from servelab.archive.layout import MANIFEST, media_type
from servelab.archive.zip_format import MARK

RUN = "results/runs/0123456789abcdef0123"
STUDY = "results/studies/demo"
ZEROS = b"\0" * (1 << 20)


def _table() -> bytes:
    output = pa.BufferOutputStream()
    pq.write_table(pa.table({"run_id": ["0123456789abcdef0123"], "value": [1.0]}), output)
    return output.getvalue().to_pybytes()


TABLE = _table()


def _content(draw: random.Random) -> dict[str, bytes]:
    """Files as an archive has them, as far as it can be told from their names."""
    return {
        "README.md": b"# A study\n",
        "recipe/demo.yaml": b"study: demo\n",
        f"{RUN}/manifest.json": b'{"run_id": "0123456789abcdef0123"}',
        f"{RUN}/requests.parquet": TABLE,
        f"{RUN}/server.log": b"started\n" * 99,
        f"{RUN}/spec.json": b'{"engine": {"name": "llama.cpp"}}',
        f"{RUN}/status.json": b'{"outcome": "ok"}',
        f"{STUDY}/recommended.json": b'{"run_id": "0123456789abcdef0123"}',
        f"{STUDY}/report.html": b'<a href="../../runs/0123456789abcdef0123/spec.json">7</a>',
        f"{STUDY}/stages/one/plan.json": b'{"candidates": []}',
        f"{STUDY}/stages/one/table.parquet": TABLE,
        "workflow/Snakefile": b"rule all:\n",
        "workflow/config/studies/demo.yaml": b"study: demo\n",
        "workflow/envs/workflow.lock.txt": b"pandas==1\n",
        "workflow/rules/measure.smk": b"rule measure:\n",
    }


def _manifest(content: Mapping[str, bytes], **changed: Any) -> dict[str, Any]:
    members = {
        name: {
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_bytes": len(data),
            "media_type": media_type(name),
            "redacted": False,
        }
        for name, data in sorted(content.items())
    }
    told = {"format": "servelab-archive/1", "study": "demo", "title": "A study", "date": "2026-11-23"}
    return told | {"searches": ["studies/demo"], "commit": None, "dirty": None, "members": members} | changed


def _packed(content: Mapping[str, bytes], manifest: Any = None) -> bytes:
    """An archive of the right form whose manifest agrees with its files."""
    told = _manifest(content) if manifest is None else manifest
    text = told if isinstance(told, bytes) else json.dumps(told).encode()
    return made_zip([File(name, data) for name, data in sorted({**content, MANIFEST: text}.items())])


def sound(draw: random.Random) -> bytes:
    """An archive of the right form with nothing odd in it but that its records are no records."""
    return _packed(_content(draw))


def odd_json(draw: random.Random) -> bytes:
    """JSON of a form that no workflow writes, or no JSON."""
    deep = draw.choice([60, 900, 90_000])
    return draw.choice(
        [
            b"[" * deep + b"]" * deep,
            b'{"a":' * deep + b"1" + b"}" * deep,
            b"[" * deep,
            b"9" * draw.randrange(4301, 90_000),
            b'{"spec": ' + b"9" * 400 + b"}",
            b"[]", b"{}", b"null", b"7", b'"x"', b"", b"NaN", b"\xff\xfe", b"{", b'{"a": 1e999}', b'"\\ud800"',
            b'{"spec": null, "candidates": 7, "workload": [], "engine": [], "members": {}, "searches": 3}',
            b'{"candidates": [{"runs": [7]}], "spec": {"workload": "x"}, "requests_sha256": []}',
            b'{"candidates": [[]], "workload": {"requests_sha256": {}}, "engine": {"environment_sha256": 7}}',
            b"[" + b"{}," * draw.randrange(1000, 90_000) + b"{}]",
        ]
    )  # fmt: skip


def _odd_name(draw: random.Random) -> str:
    parts = ["..", ".", "", "a", "results", "NUL", "con.txt", "a:b", "a\\b", "\u202e", "\0", "\x1b[2J", "é", "e\u0301"]
    parts += ["a ", " a", "a.", "x" * 256, "\uff0e\uff0e", "\u2024\u2024", "\ufb01", "C:"]
    while True:
        name = "/".join(draw.choice(parts) for _ in range(draw.randrange(1, 40)))
        if any(part not in ("a", "results", "é", "\ufb01") for part in name.split("/")) or name.count("/") > 31:
            return name


def _name(draw: random.Random) -> bytes:
    return made_zip([File("a.txt"), File(_odd_name(draw))])


def _same_name(draw: random.Random) -> bytes:
    one = draw.choice(["report.html", "results/runs/a/spec.json", "straße.txt", "ﬁle.txt", "a/b"])
    other = draw.choice([one, one.upper(), one.casefold() if one != one.casefold() else one, f"{one}/below"])
    return made_zip([File(one), File(other)])


def _field(draw: random.Random) -> bytes:
    """A field of the header or of the entry with another value."""
    sizes = {"crc32": 4, "packed": 4, "size": 4, "flags": 2, "method": 2, "time": 2, "date": 2, "version": 1}
    name = draw.choice([*sizes, "disk", "internal", "made_by"])
    value = draw.randrange(1, 1 << (8 * sizes.get(name, 1)))
    changed = {name: value}
    kept = {"version": 20, "method": 8, "date": 0x21}
    if kept.get(name) == value:
        changed = {"crc32": 7}
    where = {"entry": changed} if name in ("disk", "internal", "made_by") or draw.random() < 0.5 else {"local": changed}
    return made_zip([File("a.txt"), File("b.txt", draw.randbytes(99), **where)])


def _mode(draw: random.Random) -> bytes:
    mode = draw.choice([m for m in range(0, 1 << 16, 0o10) if m != REGULAR >> 16])
    return made_zip([File("a.txt", b"/etc/passwd", mode=mode << 16)])


def _extra(draw: random.Random) -> bytes:
    kind, length = draw.choice([1, 0x7075, 0x000D, 0x756E, 0x5455, draw.randrange(1 << 16)]), draw.randrange(0, 60)
    extra = struct.pack("<2H", kind, draw.choice([length, 0, 65535])) + draw.randbytes(length)
    return made_zip([File("a.txt", **{draw.choice(["local_extra", "entry_extra"]): extra})])


def _cut(draw: random.Random) -> bytes:
    whole = sound(draw)
    return whole[: draw.randrange(len(whole))]


def _added(draw: random.Random) -> bytes:
    whole = sound(draw)
    place = draw.choice([0, len(whole), draw.randrange(len(whole))])
    return whole[:place] + draw.randbytes(draw.choice([1, 22, 5000])) + whole[place:]


def _flipped(draw: random.Random) -> bytes:
    whole = bytearray(sound(draw))
    for _ in range(draw.choice([1, 2, 50])):
        whole[draw.randrange(len(whole))] ^= draw.randrange(1, 256)
    return bytes(whole)


def _end(draw: random.Random) -> bytes:
    """Another last record: counts, sizes and offsets as drawn."""
    numbers = [draw.choice([0, 1, 2, 0xFFFF, draw.randrange(1 << 16)]) for _ in range(4)]
    places = [draw.choice([0, 22, 0xFFFFFFFF, 1 << 31, draw.randrange(1 << 32)]) for _ in range(2)]
    end = struct.pack("<4s4H2LH", b"PK\5\6", *numbers, *places, len(MARK)) + MARK
    wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, *(draw.randrange(1 << 64) for _ in range(4)))
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, draw.randrange(1 << 40), 1)
    return made_zip([File("a.txt")], end=draw.choice([end, wide + locator + end, locator + end]))


def _bomb(draw: random.Random) -> bytes:
    """Members of 60 MiB each that are 1,000 times as small: none alone is too large."""
    content = ZEROS * 60
    packed = deflated(content, 9)
    crc = zlib.crc32(content)
    many = draw.randrange(6, 120)
    return made_zip([File(f"{n}.log", b"", packed=packed, size=len(content), crc32=crc) for n in range(many)])


def _wrong_size(draw: random.Random) -> bytes:
    content = ZEROS * draw.randrange(1, 30)
    return made_zip([File("a.log", content, size=draw.choice([0, 1, len(content) - 1, len(content) + 1, 1 << 31]))])


def _overlap(draw: random.Random) -> bytes:
    files = [File(f"{n}.log", ZEROS[:1000], offset=draw.randrange(0, 60) if n else None) for n in range(30)]
    return made_zip(files)


def _stream(draw: random.Random) -> bytes:
    """Packed data that is damaged, goes on, or ends early."""
    content = draw.randbytes(3000)
    packed = bytearray(deflated(content))
    kind = draw.randrange(3)
    if kind == 0:
        packed[draw.randrange(5, len(packed))] ^= draw.randrange(1, 256)
    made = bytes(packed) + (b"more" if kind == 1 else b"")
    return made_zip([File("a.log", content, packed=made[: -draw.randrange(1, 99)] if kind == 2 else made)])


def _many(draw: random.Random) -> bytes:
    body = made_zip([File("a", b"")])
    entry_at = body.index(b"PK\1\2")
    entry = body[entry_at : body.index(b"PK\5\6")]
    count = draw.randrange(100_001, 110_000)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(entry) * count, entry_at, len(MARK)) + MARK
    return body[:entry_at] + entry * count + end


def _odd_manifest(draw: random.Random) -> bytes:
    return _packed(_content(draw), odd_json(draw))


def _changed_manifest(draw: random.Random) -> bytes:
    """A manifest in which one thing is another."""
    content = _content(draw)
    name = draw.choice(sorted(content))
    told = _manifest(content)
    change = draw.randrange(8)
    if change == 0:
        del told["members"][name]
    elif change == 1:
        told["members"]["results/none"] = told["members"][name]
    elif change == 2:
        told["members"][name][draw.choice(["sha256", "size_bytes", "media_type"])] = draw.choice(
            ["0" * 64, 7, -1, "x", None]
        )
    elif change == 3:
        told["date"] = draw.choice(["2026-02-31", "2026-13-01", "0000-01-01", "9999-99-99"])
        told["members"].pop("README.md")
    elif change == 4:
        told["searches"] = draw.choice([["studies/none"], ["../.."], [], ["recorded/demo"], ["studies/demo"] * 2, "x"])
    elif change == 5:
        told[draw.choice(sorted(told))] = draw.choice([None, 7, [], {}, "\x1b[2J"])
        told["surplus"] = 1
    elif change == 6:
        told["members"][name]["sha256"] = "g" * 64
    else:
        told["format"] = "servelab-archive/9"
    return _packed(content, told)


def _odd_record(draw: random.Random) -> bytes:
    """One of the JSON files of a study or run has another form; hashes agree."""
    content = _content(draw)
    content[draw.choice([name for name in sorted(content) if name.endswith(".json")])] = odd_json(draw)
    return _packed(content)


def _odd_plan(draw: random.Random) -> bytes:
    """A recorded study, whose plan is read for its logs."""
    content = {name.replace("studies/", "recorded/"): data for name, data in _content(draw).items()}
    content["results/recorded/demo/stages/one/plan.json"] = odd_json(draw)
    content["results/recorded/demo/logs/a.txt"] = b"x"
    return _packed(content, _manifest(content, searches=["recorded/demo"]))


def _odd_file(draw: random.Random) -> bytes:
    """One file is missing, empty, no text, or no table."""
    content = _content(draw)
    name = draw.choice(sorted(content))
    if draw.random() < 0.5:
        del content[name]
    else:
        content[name] = draw.choice(
            [b"", b"\xff\xfe\x00", draw.randbytes(5000), b"PAR1" + draw.randbytes(90) + b"PAR1"]
        )
    return _packed(content)


def _odd_folder(draw: random.Random) -> bytes:
    """A file where a folder belongs."""
    content = _content(draw)
    folder = draw.choice(
        [STUDY, "results/runs", RUN, "workflow/config", "workflow/rules", f"{STUDY}/stages", "results"]
    )
    content = {name: data for name, data in content.items() if not name.startswith(f"{folder}/")}
    return _packed(content | {folder: b"x"})


def _odd_table(draw: random.Random) -> bytes:
    content = _content(draw)
    tail = struct.pack("<L", draw.choice([0, 1, 90, 1 << 31, 0xFFFFFFFF])) + b"PAR1"
    for name in sorted(content):
        if name.endswith(".parquet"):
            content[name] = b"PAR1" + draw.randbytes(draw.randrange(500)) + tail
    return _packed(content)


def _odd_report(draw: random.Random) -> bytes:
    content = _content(draw)
    content[f"{STUDY}/report.html"] = draw.choice(
        [
            b"<a " * 60_000,
            b'<a href="' * 30_000,
            b'<a href="%s">' % (b"../" * 5000),
            b'<a href="&#1114112;&#xd800;%ff%00">',
            b"\xff\xfe",
            b'<a href="//[::1">',
            b'<a href="../../../../etc/passwd">',
        ]
    )
    return _packed(content)


FORM: dict[str, Callable[[random.Random], bytes]] = {
    "a name": _name,
    "a name twice": _same_name,
    "a field": _field,
    "a mode": _mode,
    "an extra field": _extra,
    "cut": _cut,
    "added": _added,
    "flipped": _flipped,
    "the last record": _end,
    "a bomb": _bomb,
    "a wrong size": _wrong_size,
    "overlaps": _overlap,
    "a stream": _stream,
    "many members": _many,
}
CONTENT: dict[str, Callable[[random.Random], bytes]] = {
    "an odd manifest": _odd_manifest,
    "a changed manifest": _changed_manifest,
    "an odd record": _odd_record,
    "an odd plan": _odd_plan,
    "an odd file": _odd_file,
    "a file as folder": _odd_folder,
    "an odd table": _odd_table,
    "an odd report": _odd_report,
}
KINDS = FORM | CONTENT


def drawn(count: int, seed: int) -> list[tuple[str, int]]:
    """Kinds and seeds of so many archives, the kinds in turn."""
    draw = random.Random(seed)
    kinds = list(KINDS)
    return [(kinds[number % len(kinds)], draw.randrange(1 << 30)) for number in range(count)]


def made(kind: str, seed: int) -> bytes:
    return KINDS[kind](random.Random(f"{kind} {seed}"))
