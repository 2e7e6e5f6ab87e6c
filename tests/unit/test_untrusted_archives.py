"""Damaged and forged zips: each is refused by one error that names the archive, and nothing is unpacked."""

from __future__ import annotations

import hashlib
import json
import random
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from servelab.archive.layout import Limits, opened, unpacked
from servelab.core.errors import ServelabError

LIMITS = Limits()
FILES = {
    "README.md": b"read me\n",
    "results/runs/0123456789abcdef0123/status.json": b'{"outcome": "ok"}',
    "results/studies/a/improvements.parquet": bytes(range(256)) * 40,
    "workflow/Snakefile": b"rule all:\n" * 200,
}


def manifest_of(files: dict[str, bytes]) -> bytes:
    members = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
        for name, content in files.items()
    }
    about = {"study": "a", "title": "A", "date": "2026-11-21", "searches": ["studies/a"], "commit": None, "dirty": None}
    return json.dumps({**about, "members": members}).encode()


def write(
    path: Path, files: dict[str, bytes], manifest: bytes | None = None, *, mode: int = 0, twice: str = ""
) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [*files.items(), *([(twice, b"again")] if twice else [])]:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        archive.writestr("manifest.json", manifest_of(files) if manifest is None else manifest)
    return path


def faults(path: Path, limits: Limits = LIMITS) -> list[str]:
    """What a reader is told of an archive before anything is recomputed."""
    try:
        with unpacked(path, path.parent, limits), opened(path, path.parent) as (_, _, found):
            return found
    except ServelabError as error:
        return [str(error)]


NAMES = """../evil /etc/evil a/../../evil a/./b a//b C:/evil a\\b a:stream CON aux.txt a/nul.md a./b readme.MD
Results/x README.md/x results \uff0e\uff0e/evil results/runs ﬁle/../x a\u202eb a\u200bb e\u0301"""
ODD_NAMES = [*NAMES.split(), "a /b", "a\nb", "x" * 300, "/".join("a" * 200)]


def damaged(folder: Path) -> Iterator[tuple[str, Path, Limits]]:
    """Archives that must be refused, each with what was done to it."""
    for name in ODD_NAMES:
        yield f"name {name!r}", write(folder / "x.zip", {**FILES, name: b"evil"}), LIMITS
    for kind in (stat.S_IFLNK, stat.S_IFDIR, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK):
        yield f"kind {kind:o}", write(folder / "x.zip", FILES, mode=kind | 0o777), LIMITS
    for name in FILES:
        yield f"twice {name}", write(folder / "x.zip", FILES, manifest_of(FILES), twice=name), LIMITS
        others = {other: content for other, content in FILES.items() if other != name}
        yield f"missing {name}", write(folder / "x.zip", others, manifest_of(FILES)), LIMITS
        yield f"unlisted {name}", write(folder / "x.zip", FILES, manifest_of(others)), LIMITS
        yield f"changed {name}", write(folder / "x.zip", {**FILES, name: b"other"}, manifest_of(FILES)), LIMITS
        renamed = {**others, f"{name}2": FILES[name]}
        yield f"renamed {name}", write(folder / "x.zip", renamed, manifest_of(FILES)), LIMITS
    listed = json.loads(manifest_of(FILES))
    for key in listed:
        without = json.dumps({other: value for other, value in listed.items() if other != key}).encode()
        yield f"manifest without {key}", write(folder / "x.zip", FILES, without), LIMITS
    searches = ("../x", "studies/../../x", "studies//x", "runs/x", "studies/x/y", "studies/..")
    others = [json.dumps({**listed, "searches": [search]}).encode() for search in searches]
    for text in (b"", b"[]", b"{", b"\xff", b"null", b"[" * 10**5, *others):
        yield f"manifest {text[:9]!r}", write(folder / "x.zip", FILES, text), LIMITS
    twice = {**FILES, "results/studies/a/recommended.json": b'{"value": 900, "value": 100}'}
    yield "a key twice", write(folder / "x.zip", twice), LIMITS
    yield "a title twice", write(folder / "x.zip", FILES, b'{"title": "B", ' + manifest_of(FILES)[1:]), LIMITS
    bomb = {"bomb": bytes(1 << 20)}
    yield "ratio", write(folder / "x.zip", bomb), Limits(ratio_from_bytes=1 << 10)
    many = {f"bomb-{number}": bytes(1 << 14) for number in range(64)}
    yield "ratio in all", write(folder / "x.zip", many), Limits(ratio=50, ratio_from_bytes=1 << 15)
    yield "size", write(folder / "x.zip", bomb), Limits(total_bytes=1 << 10)
    yield "members", write(folder / "x.zip", FILES), Limits(members=3)
    sound = write(folder / "sound.zip", FILES).read_bytes()
    for end in range(0, len(sound) - 1, len(sound) // 12):
        (folder / "x.zip").write_bytes(sound[:end])
        yield f"cut at {end}", folder / "x.zip", LIMITS
    comment = sound[:-2] + b"\7\0" + b"+500 %!"
    for what, content in {"before": b"#!" + sound, "behind": sound + b"more", "comment": comment}.items():
        (folder / "x.zip").write_bytes(content)
        yield f"bytes of no member: {what}", folder / "x.zip", LIMITS
    for other in (b"", b"no zip at all", zlib.compress(sound), b"%PDF-1.7\n"):
        (folder / "x.zip").write_bytes(other)
        yield f"no zip {other[:9]!r}", folder / "x.zip", LIMITS


def test_each_damaged_or_forged_archive_is_refused(tmp_path):
    tried = 0
    for what, path, limits in damaged(tmp_path):
        assert faults(path, limits), what
        tried += 1
    assert tried >= 84
    assert faults(write(tmp_path / "sound.zip", FILES)) == []
    assert "none.zip: no such file; `servelab archive STUDY`" in faults(tmp_path / "none.zip")[0]


def test_a_changed_byte_is_a_fault_or_changes_no_member(tmp_path):
    sound = write(tmp_path / "sound.zip", FILES).read_bytes()
    draw = random.Random(7)
    for _ in range(300):
        at = draw.randrange(len(sound))
        (tmp_path / "x.zip").write_bytes(sound[:at] + bytes([sound[at] ^ (1 << draw.randrange(8))]) + sound[at + 1 :])
        if not faults(tmp_path / "x.zip"):
            with unpacked(tmp_path / "x.zip", tmp_path) as folder:
                assert {name: (folder / name).read_bytes() for name in FILES} == FILES


def test_nothing_is_left_of_an_archive_that_is_refused_while_it_is_unpacked(tmp_path):
    whole = write(tmp_path / "x.zip", FILES).read_bytes()
    at = whole.index(b"results/studies/a/improvements.parquet") + 60
    (tmp_path / "x.zip").write_bytes(whole[:at] + b"\0\0\0\0" + whole[at + 4 :])
    with pytest.raises(ServelabError, match=r"x\.zip: has content"), unpacked(tmp_path / "x.zip", tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.zip"]
    with unpacked(write(tmp_path / "x.zip", FILES), tmp_path) as folder:
        assert (folder / "README.md").read_bytes() == FILES["README.md"]
