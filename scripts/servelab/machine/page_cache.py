"""How much of some files the machine's page cache holds: whether reading them needs the disk."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_CHUNK_BYTES = 1 << 30
"""Mapped at once; a multiple of every page size."""


def cached_share(path: Path) -> float | None:
    """Share of the bytes of a file, or of all files below a folder, that is in the page cache: 0 to 1.

    None if it cannot be known: nothing is there, or Linux does not show it, as for another user's file that this
    process may not write.
    """
    cached = total = 0
    try:
        for file in _files(path):
            size = file.stat().st_size
            if size:
                found = _cached_bytes(file, size)
                if found is None:
                    return None
                cached, total = cached + found, total + size
    except (OSError, ValueError, AttributeError):  # ValueError: a file that became shorter; AttributeError: no mincore
        return None
    return cached / total if total else None


def _files(path: Path) -> Iterator[Path]:
    yield from (each for each in sorted(path.rglob("*")) if each.is_file()) if path.is_dir() else (path,)


def _cached_bytes(file: Path, size: int) -> int | None:
    """Bytes of a file in the page cache; None if Linux would call all of them cached, whether they are or not."""
    with file.open("rb") as content:
        if os.fstat(content.fileno()).st_uid != os.geteuid() and not os.access(file, os.W_OK):
            return None
        return sum(
            _cached_part(content.fileno(), start, min(_CHUNK_BYTES, size - start))
            for start in range(0, size, _CHUNK_BYTES)
        )


def _cached_part(descriptor: int, start: int, length: int) -> int:
    pages = np.zeros(-(-length // mmap.PAGESIZE), dtype=np.uint8)
    with mmap.mmap(descriptor, length, prot=mmap.PROT_READ, offset=start) as mapped:
        view = np.frombuffer(mapped, dtype=np.uint8)
        address = ctypes.c_void_p(view.ctypes.data)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            address, ctypes.c_size_t(length), ctypes.c_void_p(pages.ctypes.data)
        )
        del view  # a map with a view cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    cached = int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE
    is_last_cached = bool(pages[-1] & 1)
    return cached - (-length % mmap.PAGESIZE if is_last_cached else 0)
