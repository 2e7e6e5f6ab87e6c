"""The seal of a finished run: digests of all its files, in its `status.json`.

It shows damage and mistakes: a file that was changed, lost, swapped or added since the run was measured. It is no
signature: anyone who changes a file may compute the digests again.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from servelab.core.errors import ServelabError
from servelab.core.files import JsonPart
from servelab.core.identity import content_id, file_sha256

STATUS = "status.json"
"""The file that has the seal, and is written last."""
IMPORTED = "imported.json"
"""The mark of a run that was restored from an archive (`servelab.measure.run_files`)."""
SIGNED, SIGNATURE = "signed.json", "signed.json.sig"
"""Digests of what was measured, and their signature (`servelab.measure.run_files`)."""
_BESIDE = frozenset({STATUS, IMPORTED, SIGNED, SIGNATURE})
"""Files that are written when the seal is made already."""
_SPEC = "spec.json"
_SEAL = "seal"


class SealedFile(JsonPart):
    """A file of a run."""

    sha256: str = Field(description="Its sha256.")
    size_bytes: int = Field(description="Its size.")
    measured_sha256: str | None = Field(
        None, description="Its sha256 when it was measured, if an archive has redacted it since; else null."
    )


class Seal(JsonPart):
    """All files of a run."""

    files: dict[str, SealedFile] = Field(description="Every other file of the folder, by its name.")
    status_sha256: str = Field(description="sha256 of the rest of `status.json`, as JSON with sorted keys.")


def seal_of(folder: Path, status: Mapping[str, Any]) -> Seal:
    """The seal of the files in a folder, with the content that `status.json` is to have; a seal in it is ignored.

    Raises `ServelabError` if something in the folder is not a plain file or cannot be read.
    """
    files = {}
    for name, path in _files(folder):
        if name not in _BESIDE:
            if why := _not_plain(path):
                raise ServelabError(f"{path}: {why}")
            files[name] = _sealed(path)
    return Seal(files=files, status_sha256=_status_sha256(status))


def resealed(status: Mapping[str, Any], redacted: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    """The content of `status.json` after redaction: `redacted` has sha256 and size of each file that was changed."""
    seal = Seal.model_validate(status[_SEAL])
    files = dict(seal.files)
    for name, (sha256, size_bytes) in redacted.items():
        before = files[name]
        files[name] = SealedFile(
            sha256=sha256, size_bytes=size_bytes, measured_sha256=before.measured_sha256 or before.sha256
        )
    made = Seal(files=files, status_sha256=_status_sha256(status))
    return {**status, _SEAL: made.model_dump(mode="json")}


def faults_of_seal(folder: Path) -> list[str]:
    """What is wrong with the files of a finished run, whose id is the folder's name: a line per file; empty if nothing.

    Each line begins with the file's name. Reads every file. `ServelabError` names a file that exists and
    cannot be read.
    """
    try:
        if why := _not_plain(folder / STATUS):
            return [f"{STATUS}: {why}"]
        status = json.loads(_read(folder / STATUS))
        if not isinstance(status, dict):
            raise TypeError
    except (FileNotFoundError, NotADirectoryError):
        return [f"{STATUS}: missing"]
    except (ValueError, TypeError, RecursionError):
        return [f"{STATUS}: not valid JSON"]
    if status.get("run_id") != folder.name:
        return [f"{STATUS}: is of run {status.get('run_id')}, in the folder of another"]
    if status.get(_SEAL) is None:
        return [f"{STATUS}: has no seal, so another version of the workflow wrote it"]
    try:
        seal = Seal.model_validate(status[_SEAL])
    except ValidationError:
        return [f"{STATUS}: its seal was changed"]
    if seal.model_dump(mode="json") != status[_SEAL]:  # such as a misspelt key, which a model ignores
        return [f"{STATUS}: its seal was changed"]
    faults = [] if _status_sha256(status) == seal.status_sha256 else [f"{STATUS}: was changed"]
    return faults + list(_file_faults(folder, seal))


def fault_of_digests(status: bytes, digests: Mapping[str, str | None]) -> str | None:
    """What is wrong with the content of `status.json` and files of these digests, which were read together.

    None for a file that is missing. Returns None if nothing is wrong, or if there is no seal. `status` is valid JSON
    with a valid seal, if any.
    """
    content = json.loads(status)
    if content.get(_SEAL) is None:
        return None
    seal = Seal.model_validate(content[_SEAL])
    if _status_sha256(content) != seal.status_sha256:
        return f"{STATUS}: was changed"
    for name, digest in digests.items():
        sealed = seal.files.get(name)
        if (sealed and sealed.sha256) != digest:
            return f"{name}: was {'added' if sealed is None else 'changed' if digest else 'removed'}"
    return None


def _file_faults(folder: Path, seal: Seal) -> Iterator[str]:
    found = dict(_files(folder))
    for name, sealed in sorted(seal.files.items()):
        if (path := found.get(name)) is None:
            yield f"{name}: missing"
            continue
        try:
            if why := _not_plain(path):
                yield f"{name}: {why}"
            elif path.stat().st_size != sealed.size_bytes or _sha256(path) != sealed.sha256:
                yield f"{name}: was changed"
            elif name == _SPEC and (wrong := _other_id(path, folder.name)):
                yield f"{name}: {wrong}"
        except FileNotFoundError:
            yield f"{name}: missing"
    yield from (f"{name}: was added" for name in sorted(found.keys() - seal.files.keys() - _BESIDE))
    if _SPEC not in seal.files:
        yield f"{_SPEC}: is not in the seal"


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """All entries of a folder by their names; what NFS keeps of a removed open file does not count."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise ServelabError(f"{folder}: {error.strerror}") from None
    return ((path.name, path) for path in paths if not path.name.startswith(".nfs"))


def _not_plain(path: Path) -> str | None:
    mode = path.lstat().st_mode
    return None if stat.S_ISREG(mode) else "is a link" if stat.S_ISLNK(mode) else "is not a plain file"


def _sealed(path: Path) -> SealedFile:
    return SealedFile(sha256=_sha256(path), size_bytes=path.stat().st_size)


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ServelabError(f"{path}: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ServelabError(f"{path}: {error.strerror}") from None


def _other_id(path: Path, run_id: str) -> str | None:
    try:
        found = content_id(json.loads(path.read_bytes()))
    except (ValueError, RecursionError):
        return "not valid JSON"
    return None if found == run_id else f"is the specification of run {found}"


def _status_sha256(status: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in status.items() if name != _SEAL}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
