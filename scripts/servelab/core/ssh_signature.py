"""Signatures by an SSH key, made and verified by OpenSSH's own `ssh-keygen -Y`, in the namespace `servelab`.

A signature is a text file next to what it signs: `<file>.sig`. A reader needs OpenSSH only, and a file of allowed
signers (ssh-keygen(1), ALLOWED SIGNERS), which says whose key is whose. No key is ever read here: `ssh-keygen` reads
it, or asks an agent.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import describe_validation_error

NAMESPACE = "servelab"
"""A signature made for another purpose, such as a commit of git, counts for nothing here."""
SUFFIX = ".sig"
_TIMEOUT_S = 60.0
_BY = re.compile(r'^Good "[^"]*" signature (?:for .* )?with (?P<key>\S+ key \S+)$', re.MULTILINE)
_NOT_INSTALLED = "ssh-keygen: not installed; install OpenSSH's client (on Debian the package openssh-client)"
_WHY = (
    ("incorrect passphrase", "has a passphrase, and no agent has the key: run `ssh-add {key}`, or name another key"),
    ("too open", "other users may read it: run `chmod 600 {key}`"),
    ("No such file", "there is no such key; make one with `ssh-keygen -t ed25519 -f {key}`"),
)
"""The words of `ssh-keygen` → the fault of a key, and the fix."""


class SigningKey(Strict):
    """The key that signs, and whose it is."""

    key: str = Field(
        min_length=1,
        description="Path of the private SSH key; `~` is your home folder. With an agent that has the key, the path of "
        "its public key will do.",
    )
    identity: str = Field(
        pattern=r"^[A-Za-z0-9][^\s,*?!\"#\\\x00-\x1f\x7f]{0,199}$",
        description="Who signs, as readers name the key in their file of allowed signers, such as `lab@example.org`. "
        "It is written into what is signed.",
    )

    @field_validator("key")
    @classmethod
    def _is_no_key(cls, key: str) -> str:
        if "PRIVATE KEY" in key or "\n" in key:
            raise ValueError("name the file of the key, not the key itself")
        return key

    @property
    def path(self) -> Path:
        """The key's file."""
        return Path(self.key).expanduser()


def parse_key(text: str) -> SigningKey:
    """The key that an option of a command line names, as JSON; `ConfigError` if it names none."""
    try:
        return SigningKey.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, "--sign", SigningKey)) from None


@dataclass(frozen=True)
class Signer:
    """Who signed, by a reader's file of allowed signers."""

    identity: str
    key: str
    """Kind and fingerprint, such as `ED25519 key SHA256:…`."""

    def __str__(self) -> str:
        return f"{self.identity} ({self.key})"


class BadSignatureError(ServelabError):
    """A signature that does not count; the text says why, without the file's name."""


def check_key(key: SigningKey) -> None:
    """Signs something small; `ConfigError` if that fails."""
    _sign(key, Path(os.devnull))


def sign_file(key: SigningKey, file: Path) -> Path:
    """Writes the signature of a file next to it, and returns its path; `ConfigError` if the key cannot sign."""
    output = file.with_name(file.name + SUFFIX)
    output.write_text(_sign(key, file), encoding="ascii")
    return output


def verify_file(file: Path, signature: Path, allowed_signers: Path) -> Signer:
    """Who signed a file; `BadSignatureError` if it was changed or `allowed_signers` has no such key, valid today."""
    if not allowed_signers.is_file():
        raise ServelabError(f"{allowed_signers}: no such file; it is to name the keys that you trust (docs/archive.md)")
    made = _keygen("-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature), content=file)
    if made.returncode or not (found := _BY.search(made.stdout)):
        raise BadSignatureError(_broken(made.stderr))
    key, known = found["key"], ["-f", str(allowed_signers), "-s", str(signature)]
    made = _keygen("-Y", "find-principals", *known)
    for name in filter(None, [] if made.returncode else made.stdout.split("\n")):
        made = _keygen("-Y", "verify", "-n", NAMESPACE, "-I", name, *known, content=file)
        if not made.returncode and _BY.search(made.stdout):
            return Signer(name, key)
    raise BadSignatureError(f"{allowed_signers} does not say whose {key} is{_reason(made.stderr)}")


def _sign(key: SigningKey, file: Path) -> str:
    environment = dict(os.environ) | {"SSH_ASKPASS_REQUIRE": "never"}
    try:
        done = _keygen("-Y", "sign", "-n", NAMESPACE, "-f", str(key.path), content=file, environment=environment)
    except ServelabError as error:
        raise ConfigError(f"sign: {error}, or leave `sign` out") from None
    except subprocess.TimeoutExpired:
        waits = f"does not sign within {_TIMEOUT_S:g} s; a key that waits to be touched cannot be used"
        raise ConfigError(f"sign.key: {key.path}: {waits}") from None
    if done.returncode or not done.stdout.startswith("-----BEGIN SSH SIGNATURE-----"):
        cannot = f"cannot sign: {(done.stderr.strip() or '?').splitlines()[-1]}"
        why = next((fix for words, fix in _WHY if words in done.stderr), cannot)
        raise ConfigError(f"sign.key: {key.path}: {why.format(key=key.path)}")
    return done.stdout


def _keygen(
    *arguments: str, content: Path = Path(os.devnull), environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    with content.open("rb") as file:
        try:
            return subprocess.run(
                ["ssh-keygen", *arguments],
                stdin=file,
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                timeout=_TIMEOUT_S if environment else None,  # to verify, it reads the whole file
                start_new_session=True,  # without a terminal it cannot ask for a passphrase, and wait for it
                check=False,
            )
        except FileNotFoundError:
            raise ServelabError(_NOT_INSTALLED) from None


def _broken(said: str) -> str:
    if "namespace" in said:
        return f"it was made for another purpose than `{NAMESPACE}`"
    if "incorrect signature" in said:
        return "what it signs was changed"
    return f"it is no signature{_reason(said)}"


def _reason(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip() and "No principal matched" not in line]
    return f": {lines[0].strip()}" if lines else ""
