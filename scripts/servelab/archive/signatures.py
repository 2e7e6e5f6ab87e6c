"""Who signed an archive: its detached signature `<archive>.sig`, against the keys that a reader trusts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from servelab.core.run_spec import Strict
from servelab.core.ssh_signature import SUFFIX, BadSignatureError, Signer, SigningKey, sign_file, verify_file


@dataclass(frozen=True)
class ArchiveSignature:
    """What the signature of an archive says."""

    text: str
    """For a reader: who signed, or why that is not known."""
    signer: Signer | None = None
    """Who signed it; None if that is not known."""
    faults: list[str] = field(default_factory=list)
    """One line per fault, beginning with the file."""


def signature_of(archive: Path) -> Path:
    """The file of an archive's signature."""
    return archive.parent / f"{archive.name}{SUFFIX}"


def sign_archive(archive: Path, key: SigningKey | None) -> str:
    """Signs an archive that was just built, or removes the signature of the one before; returns what was done.

    `ConfigError` if the key cannot sign.
    """
    signature_of(archive).unlink(missing_ok=True)
    if key is None:
        return "unsigned"
    return f"signed as {key.identity} in {sign_file(key, archive)}"


def check_signature(archive: Path, allowed_signers: Path | None) -> ArchiveSignature:
    """Verifies the signature of an archive; `allowed_signers` is the reader's file of keys, None if there is none.

    A reader who names the keys to trust wants one of them: an archive without a signature then has a fault.
    """
    signature = signature_of(archive)
    if not signature.exists():
        text = "unsigned, so by whom is not known"
        return ArchiveSignature(text, faults=[f"{signature}: missing: {text}"] if allowed_signers else [])
    if allowed_signers is None:
        return ArchiveSignature("signature not checked without --allowed-signers, so by whom is not known")
    try:
        signer = verify_file(archive, signature, allowed_signers)
    except BadSignatureError as error:
        return ArchiveSignature("not signed by anyone you trust", faults=[f"{signature}: does not count: {error}"])
    return ArchiveSignature(f"signed by {signer}", signer)


KEY = "runs_from"


class RunPlace(Strict):
    """A place that has runs."""

    place: str = Field(min_length=1, description="Results folder, archive, or folder of archives; a path or `s3://…`.")
    allowed_signers: Path | None = Field(
        None, description="File of keys that you trust: only runs and archives that one of them signed are taken."
    )

    @field_validator("place")
    @classmethod
    def _without_credentials(cls, place: str) -> str:
        if place.startswith("s3://") and "@" in urlsplit(place).netloc:
            raise ValueError("has credentials in it; they come from the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE)")
        return place
