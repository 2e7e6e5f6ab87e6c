"""Real SSH keys for tests of signatures."""

from __future__ import annotations

import subprocess
from pathlib import Path

from servelab.core.ssh_signature import SigningKey

IDENTITY = "lab@example.org"


def make_key(file: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    """A new key pair, `file` and `file.pub`."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return file


def signing_key(file: Path, identity: str = IDENTITY) -> SigningKey:
    """How a configuration names the key."""
    return SigningKey(key=str(file), identity=identity)


def allow(file: Path, *keys: Path, identity: str = IDENTITY, options: str = "") -> Path:
    """A reader's file of allowed signers."""
    lines = [f"{identity} {options} {key.with_suffix('.pub').read_text().strip()}\n" for key in keys]
    file.write_text("".join(lines))
    return file
