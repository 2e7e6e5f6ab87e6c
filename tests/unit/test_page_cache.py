"""The share of files that is in the page cache, of real files whose pages are dropped."""

import mmap
import os

import pytest

from servelab.machine.cpu import cached_share

SIZE = 64 * mmap.PAGESIZE + 5


def written(path, size=SIZE):
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())  # only clean pages can be dropped
    return path


def drop(path, length=0):
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, length, os.POSIX_FADV_DONTNEED)


def test_what_was_just_written_is_cached_and_what_was_dropped_is_not(tmp_path):
    file = written(tmp_path / "weights")
    assert cached_share(file) == 1.0
    drop(file)
    if cached_share(file) == 1.0:
        pytest.skip("this file system keeps its files in memory")
    assert cached_share(file) == 0.0
    file.read_bytes()
    assert cached_share(file) == 1.0


def test_what_cannot_be_known_is_none(tmp_path, monkeypatch):
    assert cached_share(tmp_path) is None
    assert cached_share(tmp_path / "nothing") is None
    file = written(tmp_path / "weights")
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cached_share(file) is None
