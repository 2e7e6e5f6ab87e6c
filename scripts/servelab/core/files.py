"""Files appear complete or not at all: written under a temporary name in the same folder, synced, then renamed.

A temporary name begins with a dot and is random, so that writers on several nodes of a shared file system never write
to the same file, and nobody can put a link there first.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from servelab.core.errors import Outage, ServelabError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to, and renames it to `path` at the end; makes the folder if it is missing.

    On any error the old file stays as it was and the temporary one is removed. A full or failing disk is an `Outage`.
    """
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise Outage(f"cannot write {path}: {error.strerror or error}; fix that and run again") from error
    finally:
        with suppress(OSError):  # the folder may be missing
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file; see `replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON; see `replacing`."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def follows_no_link(path: str, flags: int) -> int:
    """An `opener` of `open`: a link that another user of the folder has put there is an `OSError`."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def move_folder(folder: Path, destination: Path) -> bool:
    """Renames a complete folder; the destination may be an empty folder. False if a folder with content is there.

    The content is synced to disk first. The rename is atomic: if several processes use one name, the first wins.
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
    """Waits until a file's content, or a folder's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync folders
            raise
    finally:
        os.close(descriptor)


REMEDY = "restore it, or remove what is left of it and run again"
"""For a file of the results that is missing or damaged."""


def check_stage(path: Path, stage: str) -> None:
    """`ServelabError` if a file of this stage lies below `stages/` in the folder of another."""
    if path.parent.parent.name == "stages" and path.parent.name != stage:
        raise ServelabError(f"{path}: is of stage {stage}; {REMEDY}")


def read_json(path: Path) -> Any:
    """The content of a JSON file of the results; `ServelabError` names one that is missing or broken."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ServelabError(f"{path}: cannot be read: {error}; {REMEDY}") from None
    if isinstance(found, dict):
        check_stage(path, found.get("stage", path.parent.name))
    return found


class JsonPart(BaseModel):
    """An object inside a JSON file. Unknown keys are ignored, so that files of other versions can be read."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class JsonFile(JsonPart):
    """A JSON file."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """The content of a file; `ServelabError` names the file, the key if one is missing or wrong, and a remedy."""
        try:
            found = cls.parse(path.read_bytes(), path)
        except OSError as error:
            raise ServelabError(f"{path}: {error.strerror}; {REMEDY}") from None
        except ServelabError as error:
            raise ServelabError(f"{error}; {REMEDY}") from None
        check_stage(path, getattr(found, "stage", path.parent.name))
        return found

    @classmethod
    def parse(cls, content: bytes, path: Path) -> Self:
        """The content of a file that was read already; errors as of `read`."""
        try:
            return cls.model_validate_json(content, extra="ignore")  # of parts that a study shares too
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"]) or "(whole file)"
            raise ServelabError(f"{path}: {key}: {first['msg']}") from None

    def write(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        write_json(path, self.model_dump(mode="json"))


FiniteOrNull = Annotated[
    float | None,
    BeforeValidator(lambda value: None if isinstance(value, float) and not math.isfinite(value) else value),
]
"""A number, or null for NaN and infinity, which JSON does not have."""

CHECKOUT = Path(__file__).resolve().parents[3]
"""The folder that contains `Snakefile`, `config/`, `envs/` and `scripts/`; of a wheel, `servelab_home`."""


def own_or_shipped(root: Path, name: str | Path) -> Path:
    """`name` below the folder `root`, or below the checkout if only the checkout has it."""
    own, shipped = root / name, CHECKOUT / name
    return shipped if os.path.lexists(shipped) and not os.path.lexists(own) else own
