"""Whatever is changed in an archive's bytes is found, and the message says where: no byte of it is free."""

import hashlib
import random
import zipfile

import pytest

from servelab.archive.layout import MANIFEST, Manifest, Member, media_type
from servelab.archive.unpack import faults, open_archive
from servelab.archive.verify import member_faults, read_manifest
from servelab.archive.zip_format import STORED, entry, seal

SEED, MUTATIONS = 20261121, 500
DRAW = random.Random(SEED)
CONTENTS = {
    "README.md": b"# A study\n\nIts records, tables and report.\n" * 8,
    "recipe/demo.yaml": b"study: demo\n",
    "results/runs/0123456789abcdef0123/empty.log": b"",
    "results/runs/0123456789abcdef0123/requests.parquet": DRAW.randbytes(3000),
    "results/runs/0123456789abcdef0123/server.log": b"".join(
        b"request %d took %d ms\n" % (n, n * 7) for n in range(400)
    ),
    "results/studies/demo/report.html": "<h1>Größe</h1>".encode() * 90,
    "results/studies/größe.json": b'{"value": 1}\n',
}


def write_sealed(path, contents):
    """An archive as a build writes it."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            with archive.open(entry(name, len(content)), "w") as member:
                member.write(content)
    seal(path)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    path = tmp_path_factory.mktemp("mutations") / "demo.zip"
    write_sealed(path, CONTENTS)
    return path


@pytest.fixture(scope="module")
def ranges(sealed):
    """Where each member's bytes lie, its own header included."""
    with open_archive(sealed) as archive:
        return {name: range(member.offset, member.end) for name, member in archive.members.items()}


def changed_byte(draw, content):
    """Where something was changed, and the changed content."""
    position = draw.randrange(len(content))
    byte = content[position] ^ draw.randrange(1, 256)
    return [position], content[:position] + bytes([byte]) + content[position + 1 :]


def removed_bytes(draw, content):
    position, length = draw.randrange(len(content)), draw.choice([1, 1, 1, 7, 300])
    end = min(position + length, len(content))
    return [position, end - 1], content[:position] + content[end:]


def added_bytes(draw, content):
    position = draw.randrange(len(content) + 1)
    return [position], content[:position] + draw.randbytes(draw.choice([1, 1, 1, 7, 300])) + content[position:]


def swapped_bytes(draw, content):
    while True:
        length = draw.choice([1, 1, 1, 16])
        one, two = sorted(draw.sample(range(len(content) - length), 2))
        first, second = content[one : one + length], content[two : two + length]
        if one + length <= two and first != second:
            made = content[:one] + second + content[one + length : two] + first + content[two + length :]
            return [one, one + length - 1, two, two + length - 1], made


KINDS = [changed_byte, removed_bytes, added_bytes, swapped_bytes]


def test_the_archive_itself_has_no_fault(sealed):
    assert faults(sealed) == []
    with open_archive(sealed) as archive:
        assert {name: archive.read(name) for name in archive.members} == CONTENTS
    with zipfile.ZipFile(sealed) as archive:  # any zip program reads it
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == CONTENTS


def test_same_content_gives_the_same_bytes(sealed, tmp_path):
    again = tmp_path / "again.zip"
    write_sealed(again, CONTENTS)
    assert again.read_bytes() == sealed.read_bytes()


def test_headers_and_directory_are_those_of_earlier_python_releases(tmp_path):
    """The form is what Python's zipfile writes: if that changes, archives made before are refused."""
    path = tmp_path / "known.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"a.txt": b"one\n", "größe/b.json": b"{}\n"}.items():
            with archive.open(entry(name, len(content), method=STORED), "w") as member:
                member.write(content)
    seal(path)
    known = "ccb5860a2ddc8a7ae56c1802bd1b60b2cb13964ad32b34079ef56732dfe17408"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known
    assert faults(path) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_random_changes_are_found_and_the_file_is_named(kind, sealed, ranges, tmp_path):
    content = sealed.read_bytes()
    draw, mutated = random.Random(f"{SEED} {kind.__name__}"), tmp_path / "mutated.zip"
    for number in range(MUTATIONS // len(KINDS)):
        positions, changed = kind(draw, content)
        assert changed != content
        mutated.write_bytes(changed)
        found = faults(mutated)
        assert found, f"{kind.__name__} {number} at {positions} is not found"
        assert all(line.startswith(f"{mutated}: ") and line.isprintable() for line in found)
        touched = [[name for name, where in ranges.items() if position in where] for position in positions]
        if all(touched):  # else the directory was changed too
            shown = [name.encode("unicode_escape").decode() for names in touched for name in names]
            assert any(f": {name}: " in line for line in found for name in shown), (positions, shown, found)


def free_bits(path, positions):
    """Bits of a file that can be turned over, one at a time, without a fault."""
    content, free = path.read_bytes(), []
    for position in positions:
        for bit in range(8):
            path.write_bytes(content[:position] + bytes([content[position] ^ (1 << bit)]) + content[position + 1 :])
            if not faults(path):
                free.append((position, bit))
    path.write_bytes(content)
    assert faults(path) == []
    return free


def test_no_bit_of_an_archive_is_free(tmp_path):
    """Fields nobody reads, comments, gaps: each bit of a whole archive."""
    path = tmp_path / "small.zip"
    write_sealed(path, {"é": b"abab"})
    assert free_bits(path, range(path.stat().st_size)) == []


@pytest.mark.parametrize(
    "content", [b"abcabc\n" * 9, random.Random(SEED).randbytes(30)], ids=["packed", "not packable"]
)
def test_no_bit_of_a_deflated_stream_is_free(content, tmp_path):
    """The last byte, and the first of a stored block, have bits that the format skips: no CRC finds them changed."""
    path = tmp_path / "small.zip"
    write_sealed(path, {"a": content})
    with open_archive(path) as archive:
        member = archive.members["a"]
    assert free_bits(path, range(member.data_offset, member.end)) == []


def test_every_fault_of_an_archive_is_told(sealed, ranges, tmp_path):
    """Two damaged members are two lines."""
    content = bytearray(sealed.read_bytes())
    damaged = ["README.md", "results/runs/0123456789abcdef0123/server.log"]
    for name in damaged:
        content[ranges[name][-1]] ^= 0xFF
    path = tmp_path / "damaged.zip"
    path.write_bytes(content)
    found = faults(path)
    assert len(found) == 2
    assert [name in line for name, line in zip(damaged, found, strict=True)] == [True, True]


def test_headers_of_zip64_are_the_same_with_every_release(monkeypatch, tmp_path):
    """Python 3.11.2 writes other ones than 3.11.7 for a member near the limit."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 200)
    path = tmp_path / "known.zip"
    write_sealed(path, {"near.txt": b"four" * 49, "beyond.txt": b"four" * 99})
    known = "00f0a98c8636cdbf0014f17e955268120573143be474448860751d11a000cd93"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known
    assert faults(path) == []


def test_more_packed_data_than_any_content_has_is_one_fault(tmp_path):
    """The header of such a member cannot be written with Python 3.11.2, which was a traceback."""
    path = tmp_path / "packed.zip"
    write_sealed(path, {"a.txt": b"four"})
    content = bytearray(path.read_bytes())
    size_at = content.index(b"PK\1\2") + 20
    content[size_at : size_at + 4] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(content)
    [line] = faults(path)
    assert "a.txt: has 2,147,483,648 bytes of data, more than its content packs to" in line


def test_archives_beyond_2_gb_are_of_the_same_form(monkeypatch, tmp_path):
    """With a lower limit, so that sizes and offsets need zip64."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 200)
    path = tmp_path / "large.zip"
    write_sealed(path, CONTENTS)
    assert faults(path) == []
    with open_archive(path) as archive:
        assert {name: archive.read(name) for name in archive.members} == CONTENTS
    content, draw = path.read_bytes(), random.Random(SEED)
    assert content.count(b"PK\6\6") == 1
    for _ in range(100):
        _, changed = changed_byte(draw, content)
        path.write_bytes(changed)
        assert faults(path)


@pytest.mark.slow
def test_archives_of_very_many_members(tmp_path):
    path = tmp_path / "many.zip"
    write_sealed(path, {f"runs/{number:06d}/status.json": b"{}" for number in range(70_000)})
    assert faults(path) == []


# Zips that are whole and sealed, and hold something else than their manifest says: what whoever changes one can do.


def removed_member(draw, contents):
    name = draw.choice(sorted(contents))
    return [name], {other: content for other, content in contents.items() if other != name}


def added_member(draw, contents):
    name = f"results/runs/{draw.randrange(10**6)}.json"
    return [name], contents | {name: b"{}"}


def renamed_member(draw, contents):
    name = draw.choice(sorted(contents))
    return [name, f"{name}.old"], {
        f"{other}.old" if other == name else other: content for other, content in contents.items()
    }


def swapped_members(draw, contents):
    one, other = draw.sample(sorted(contents), 2)
    return [one, other], contents | {one: contents[other], other: contents[one]}


def changed_member(draw, contents):
    name = draw.choice([name for name, content in sorted(contents.items()) if content])
    return [name], contents | {name: changed_byte(draw, contents[name])[1]}


def longer_member(draw, contents):
    name = draw.choice(sorted(contents))
    return [name], contents | {name: contents[name] + b"\n"}


MEMBER_KINDS = [removed_member, added_member, renamed_member, swapped_members, changed_member, longer_member]


@pytest.mark.parametrize("kind", MEMBER_KINDS, ids=lambda kind: kind.__name__)
def test_what_is_not_as_the_manifest_says_is_found_and_named(kind, tmp_path):
    told = {
        name: Member(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content), media_type=media_type(name))
        for name, content in CONTENTS.items()
    }
    about = {"study": "demo", "title": "Demo", "date": "2026-11-21", "commit": None, "dirty": None}
    manifest = Manifest(searches=["studies/demo"], members=told, **about).model_dump_json().encode()
    path, draw = tmp_path / "demo.zip", random.Random(f"{SEED} {kind.__name__}")
    for changed in [None, *range(25)]:
        names, contents = ([], CONTENTS) if changed is None else kind(draw, CONTENTS)
        write_sealed(path, {MANIFEST: manifest} | contents)
        assert faults(path) == []
        with open_archive(path) as archive:
            found = list(member_faults(archive, read_manifest(archive)))
        assert len(found) == len(names)
        for name in names:
            spelt = (f"{name}: ", f"{name.encode('unicode_escape').decode()}: ")
            assert any(line.startswith(spelt) for line in found), (names, found)
