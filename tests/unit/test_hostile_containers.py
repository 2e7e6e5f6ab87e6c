"""Archives drawn to do harm: each command that opens one ends in one clear error, or finds a fault, and leaves nothing.

Tables are not recomputed here: that is a workflow of its own, which `tests/workflow` runs.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hostile_containers import CONTENT, KINDS, ZEROS, drawn, made
from made_zip import File, deflated, made_zip

from servelab.archive import verify
from servelab.archive.compare import compare_archives
from servelab.archive.restore import Verified, restore_verified
from servelab.archive.signatures import check_signature
from servelab.archive.unpack import Limits, faults, unpack
from servelab.core.errors import ServelabError
from servelab.core.identity import file_sha256

ROOT = Path(__file__).parents[2]
SAMPLE = [(kind, number) for kind in KINDS for number in range(2)]
ALL = drawn(200, seed=20261123)


@pytest.fixture(autouse=True)
def not_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "recompute", lambda *_: "not tried")


def check(kind: str, seed: int, folder: Path) -> None:
    path = folder / "a.zip"
    path.write_bytes(made(kind, seed))
    try:
        assert verify.verify_archive(path, ROOT).faults
    except ServelabError as error:
        assert_clear(error, path)
    with pytest.raises(ServelabError) as raised:
        list(compare_archives(path, path))
    assert_clear(raised.value, path)
    results = folder / "results"
    results.mkdir()
    with pytest.raises(ServelabError) as raised:
        restore_verified(Verified(path, file_sha256(path), check_signature(path, None)), results)
    assert_clear(raised.value, path)
    if kind not in CONTENT:
        assert faults(path)
        with pytest.raises(ServelabError) as raised:
            unpack(path, folder / "unpacked")
        assert_clear(raised.value, path)
    # A restore locks the study's folder before it looks on.
    left = [each for each in folder.rglob("*") if each.is_file() and each.suffix != ".lock" and each != path]
    assert not left


def assert_clear(error: ServelabError, path: Path) -> None:
    message = str(error)
    assert message.startswith(str(path))
    assert message.isprintable() and len(message) < 2000


@pytest.mark.parametrize(("kind", "seed"), SAMPLE)
def test_a_hostile_container_is_refused(kind: str, seed: int, tmp_path: Path) -> None:
    check(kind, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), ALL)
def test_200_hostile_containers_are_refused(kind: str, seed: int, tmp_path: Path) -> None:
    check(kind, seed, tmp_path)


def test_members_that_are_small_one_by_one_are_refused_together(tmp_path: Path) -> None:
    """6 MB that unpack to 6.3 GB: each member is below the size from which its ratio counts."""
    content = ZEROS * 60
    packed = deflated(content, 9)
    path = tmp_path / "a.zip"
    path.write_bytes(made_zip([File(f"{n}.log", packed=packed, size=len(content)) for n in range(100)]))
    assert path.stat().st_size < 6_500_000
    with pytest.raises(ServelabError, match=r"declares 6,291,456,000 bytes in 6,\d+,\d+ in all: more than 100 : 1"):
        unpack(path, tmp_path / "unpacked")


def test_a_study_of_repeating_logs_is_unpacked(tmp_path: Path) -> None:
    """Logs shrink to a fiftieth, whole archives to a third: far from the limits."""
    draw = random.Random(0)
    log = b"".join(b"INFO Running: %d reqs\n" % (n % 10) for n in range(100_000))
    files = [File(f"{n}.log", log) for n in range(5)] + [File("a.parquet", draw.randbytes(100_000))]
    path = tmp_path / "a.zip"
    path.write_bytes(made_zip(files))
    unpack(path, tmp_path / "unpacked", Limits(total_ratio_from_bytes=1 << 20))
    assert (tmp_path / "unpacked/4.log").read_bytes() == log


def test_links_of_a_report_are_found_in_linear_time() -> None:
    """With a pattern that looks on from each `<a` to the end, this takes hours."""
    assert verify._HREF.findall("<a " * 1_000_000) == []
    assert verify._HREF.findall('<a class="x"\nhref="y">1</a>' * 2) == ["y", "y"]
