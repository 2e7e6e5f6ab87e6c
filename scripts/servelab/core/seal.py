"""The seal of a finished run: digests of all its files, in its `status.json`.

It shows damage and mistakes: a file that was changed, lost, swapped or added since the run was measured. It is no
signature: anyone who changes a file may compute the digests again.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
_BESIDE = frozenset({STATUS, IMPORTED})
"""Files that are not in the seal."""
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
    with _readable():
        for name, path in _files(folder).items():
            if name not in _BESIDE:
                if why := _not_plain(path):
                    raise ServelabError(f"{path}: {why}")
                files[name] = SealedFile(sha256=file_sha256(path), size_bytes=path.stat().st_size)
    return Seal(files=files, status_sha256=_status_sha256(status))


def resealed(status: Mapping[str, Any], redacted: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    """The content of `status.json` after redaction: `redacted` has sha256 and size of each file that was changed."""
    files = dict(Seal.model_validate(status[_SEAL]).files)
    for name, (sha256, size_bytes) in redacted.items():
        measured = files[name].measured_sha256 or files[name].sha256
        files[name] = SealedFile(sha256=sha256, size_bytes=size_bytes, measured_sha256=measured)
    made = Seal(files=files, status_sha256=_status_sha256(status))
    return {**status, _SEAL: made.model_dump(mode="json")}


def faults_of_seal(folder: Path) -> list[str]:
    """Faults in the files of a finished run, whose id is the folder's name: a line per file; empty if there are none.

    Each line begins with the file's name. Reads every file. `ServelabError` names a file that exists and
    cannot be read.
    """
    with _readable():
        try:
            if why := _not_plain(folder / STATUS):
                return [f"{STATUS}: {why}"]
            status = json.loads((folder / STATUS).read_bytes())
            seal = _seal_in(status, folder.name)
        except (FileNotFoundError, NotADirectoryError):
            return [f"{STATUS}: missing"]
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            return [f"{STATUS}: not valid JSON"]
        if isinstance(seal, str):
            return [f"{STATUS}: {seal}"]
        faults = [] if _status_sha256(status) == seal.status_sha256 else [f"{STATUS}: was changed"]
        return faults + list(_file_faults(folder, seal))


def fault_of_digests(status: bytes, digests: Mapping[str, str | None]) -> str | None:
    """Faults of the content of `status.json` and files of these digests, which were read together.

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


def _seal_in(status: Any, run_id: str) -> Seal | str:
    """The seal of a status, or what is wrong with the status."""
    if not isinstance(status, dict):
        return "not valid JSON"
    if status.get("run_id") != run_id:
        return f"is of run {status.get('run_id')}, in the folder of another"
    if status.get(_SEAL) is None:
        return "has no seal, so another version of the workflow wrote it"
    try:
        seal = Seal.model_validate(status[_SEAL])
    except ValidationError:
        return "its seal was changed"
    # a misspelt key is one that the model ignores
    return seal if seal.model_dump(mode="json") == status[_SEAL] else "its seal was changed"


def _file_faults(folder: Path, seal: Seal) -> Iterator[str]:
    found = _files(folder)
    for name, sealed in sorted(seal.files.items()):
        try:
            if fault := _fault(found[name], sealed, folder.name):
                yield f"{name}: {fault}"
        except (KeyError, FileNotFoundError):
            yield f"{name}: missing"
    yield from (f"{name}: was added" for name in sorted(found.keys() - seal.files.keys() - _BESIDE))
    if _SPEC not in seal.files:
        yield f"{_SPEC}: is not in the seal"


def _fault(path: Path, sealed: SealedFile, run_id: str) -> str | None:
    if why := _not_plain(path):
        return why
    if path.stat().st_size != sealed.size_bytes or file_sha256(path) != sealed.sha256:
        return "was changed"
    if path.name != _SPEC:
        return None
    try:
        found = content_id(json.loads(path.read_bytes()))
    except (ValueError, RecursionError):
        return "not valid JSON"
    return None if found == run_id else f"is the specification of run {found}"


def _files(folder: Path) -> dict[str, Path]:
    """All entries of a folder by their names; what NFS keeps of a removed open file does not count."""
    return {path.name: path for path in sorted(folder.iterdir()) if not path.name.startswith(".nfs")}


def _not_plain(path: Path) -> str | None:
    mode = path.lstat().st_mode
    return None if stat.S_ISREG(mode) else "is a link" if stat.S_ISLNK(mode) else "is not a plain file"


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ServelabError(f"{error.filename}: {error.strerror}") from None


def _status_sha256(status: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in status.items() if name != _SEAL}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
