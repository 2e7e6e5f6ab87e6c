"""Files appear complete or not at all: written beside under a name of their own, synced, then moved into place.

What is not complete yet has a name that begins with a dot and says host and process: writers on several nodes of a
shared file system never work on the same file.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from servelab.errors import Outage


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write instead of `path`, which it becomes in one step at the end; its folder is made if need be.

    On any error the old content stays, and no other file. A full or failing disk is an `Outage`.
    """
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise Outage(f"cannot write {path}: {error.strerror or error}; mend that and run again") from error
    finally:
        with suppress(OSError):  # where its folder could not be made
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file; see `replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON; see `replacing`."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def move_folder(folder: Path, destination: Path) -> bool:
    """Moves a complete folder to a name that is free, or an empty folder's; False where another folder has the name.

    Its content is on the disk before it has the name. It is one step: of several that take one name, the first wins.
    """
    for parent, _, names in os.walk(folder):
        for name in names:
            _sync(Path(parent) / name)
        _sync(Path(parent))
    try:
        folder.rename(destination)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    _sync(destination.parent)
    return True


def _sync(path: Path) -> None:
    """Waits until a file's content, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that syncs no folders
            raise
    finally:
        os.close(descriptor)
