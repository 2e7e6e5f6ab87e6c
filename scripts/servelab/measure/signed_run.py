"""Signs a run where it is measured: `signed.json` names what was measured, `signed.json.sig` is its signature.

What is signed are the digests of the run's files as they were measured. An archive that redacts a file keeps its seal,
which names the digest before (`servelab.core.seal`), so the signature still counts for all that was not redacted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from servelab.core.errors import ServelabError
from servelab.core.files import JsonFile
from servelab.core.seal import SIGNATURE, SIGNED, STATUS, Seal, faults_of_seal
from servelab.core.ssh_signature import BadSignatureError, Signer, SigningKey, sign_file, verify_file
from servelab.measure.run_files import RunStatus


class SignedRun(JsonFile):
    """`signed.json`, which `signed.json.sig` signs."""

    run_id: str = Field(description="Run: the name of its folder.")
    identity: str = Field(description="Who says to have signed it; who did is for the signature to show.")
    files: dict[str, str] = Field(description="sha256 of each file as it was measured, by its path in the folder.")
    status_sha256: str = Field(description="As in the seal of `status.json`.")


@dataclass(frozen=True)
class RunSignature:
    """A signature that counts."""

    signer: Signer
    redacted: list[str]
    """Files that an archive has redacted since: their content is not what was signed."""


def sign_run(folder: Path, status: RunStatus, key: SigningKey) -> None:
    """Signs a sealed run; `ServelabError` if the key cannot sign, and then there is no signature."""
    assert status.seal is not None
    signed = SignedRun(
        run_id=status.run_id,
        identity=key.identity,
        files={name: file.measured_sha256 or file.sha256 for name, file in status.seal.files.items()},
        status_sha256=status.seal.status_sha256,
    )
    signed.write(folder / SIGNED)
    try:
        sign_file(key, folder / SIGNED)
    except ServelabError:
        (folder / SIGNED).unlink()
        raise


def is_signed(folder: Path) -> bool:
    """Whether the run in a folder has a signature, which may not count."""
    return (folder / SIGNED).exists() or (folder / SIGNATURE).exists()


def check_run(folder: Path, allowed_signers: Path) -> RunSignature:
    """Verifies the signature of a run; `BadSignatureError` names the file and says why the signature does not count."""
    for name in (SIGNED, SIGNATURE):
        if not (folder / name).is_file():
            raise BadSignatureError(f"{name}: missing")
    try:
        signed = SignedRun.read(folder / SIGNED)
        status = RunStatus.read(folder / STATUS)
    except ServelabError as error:
        raise BadSignatureError(str(error).removeprefix(f"{folder}/")) from None
    try:
        signer = verify_file(folder / SIGNED, folder / SIGNATURE, allowed_signers, signed.identity)
    except BadSignatureError as error:
        raise BadSignatureError(f"{SIGNATURE}: {error}") from None
    if signed.run_id != folder.name:
        raise BadSignatureError(f"{SIGNED}: is of run {signed.run_id}")
    if faults := faults_of_seal(folder):
        raise BadSignatureError(faults[0])
    assert status.seal is not None
    return RunSignature(signer, _redacted(signed, status.seal))


def _redacted(signed: SignedRun, seal: Seal) -> list[str]:
    """Files that an archive has redacted since they were signed; any other difference is a bad signature."""
    if other := sorted(signed.files.keys() ^ seal.files.keys()):
        raise BadSignatureError(f"{other[0]}: is in the seal or in {SIGNED}, but not in both")
    found = []
    for name, file in seal.files.items():
        if (file.measured_sha256 or file.sha256) != signed.files[name]:
            raise BadSignatureError(f"{name}: was changed since it was signed")
        if file.measured_sha256 not in (None, file.sha256):
            found.append(name)
    return found + ([STATUS] if seal.status_sha256 != signed.status_sha256 else [])
