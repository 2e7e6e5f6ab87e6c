"""Archives made to do harm: none writes outside, all end in one clear error, and nothing is left behind."""

import stat

import pytest
from hostile_archives import GOOD, HOSTILE, SMALL
from made_zip import File, made_zip

from servelab.archive.unpack import open_archive, unpack
from servelab.core.errors import ServelabError


@pytest.fixture
def place(tmp_path):
    """A folder to unpack into, with something beside and above it that must stay as it is."""
    (tmp_path / "outside.txt").write_text("outside")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/beside.txt").write_text("beside")
    return tmp_path


def _all_below(folder):
    return {path: None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def test_there_are_enough():
    assert len(HOSTILE) >= 100


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archive_is_refused_and_leaves_nothing(kind, place):
    hostile = HOSTILE[kind]
    archive = place / "archive.zip"
    archive.write_bytes(hostile.content)
    before = _all_below(place)
    with pytest.raises(ServelabError) as raised:
        unpack(archive, place / "inside/results", hostile.limits)
    message = str(raised.value)
    assert message.startswith(f"{archive}: ")
    assert hostile.says in message
    assert hostile.member is None or f"{archive}: {hostile.member}: " in message
    assert message.isprintable() and len(message) < 600
    assert _all_below(place) == before


@pytest.mark.parametrize("method", [0, 8])
def test_the_same_zip_without_the_fault_is_unpacked(method, place):
    """The maker of hostile archives makes good ones too, so that each is refused for its own fault."""
    files = [GOOD, File("results/é/report.html", b"text" * 1000, method=method), File("empty", b"", method=method)]
    archive = place / "archive.zip"
    archive.write_bytes(made_zip(files))
    unpack(archive, place / "inside/results", SMALL)
    unpacked = {path for path in (place / "inside/results").rglob("*") if path.is_file()}
    assert unpacked == {place / "inside/results" / str(file.name) for file in files}
    for file in files:
        path = place / "inside/results" / str(file.name)
        assert path.read_bytes() == file.content
        assert stat.S_IMODE(path.stat().st_mode) & 0o7111 == 0
    assert not list((place / "inside").glob(".*"))


def test_what_is_there_is_not_touched(place):
    archive = place / "archive.zip"
    archive.write_bytes(made_zip([GOOD]))
    for taken in (place / "inside", place / "outside.txt"):
        before = _all_below(place)
        with pytest.raises(ServelabError, match="already exists"):
            unpack(archive, taken)
        assert _all_below(place) == before
    link = place / "link"
    link.symlink_to(place / "nowhere")
    with pytest.raises(ServelabError, match="already exists"):
        unpack(archive, link)
    assert not (place / "nowhere").exists()


def test_a_member_that_is_not_there_is_named(place):
    archive = place / "archive.zip"
    archive.write_bytes(made_zip([GOOD]))
    with open_archive(archive) as opened, pytest.raises(ServelabError, match="absent: is not in the archive"):
        opened.read("absent")
    with pytest.raises(ServelabError, match="cannot be read"), open_archive(place / "absent.zip"):
        pass
