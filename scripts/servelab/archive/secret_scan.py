"""A second look at what goes into an archive, with the rules of detect-secrets: a find ends the build.

The redaction has its own rules. These are kept by others, so that one gap does not open both. Left out are rules that
judge by randomness or by a name (each sha256 and each `password:` in a document would be a find), IP addresses (each
version with four numbers would be one), and URLs with a password, which the redaction finds itself and which examples
in documents have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin

from servelab.archive.redacted_files import texts_of
from servelab.core.credential_forms import HASH_IN_LOCK
from servelab.core.errors import ServelabError

_LEFT_OUT = {
    "Base64 High Entropy String",
    "Hex High Entropy String",
    "Secret Keyword",
    "Public IP (ipv4)",
    "Basic Auth Credentials",
}


@cache
def rules() -> tuple[BasePlugin, ...]:
    """The rules of detect-secrets that are used, without their checks over a network."""
    kinds: Mapping[str, type[BasePlugin]] = get_mapping_from_secret_type_to_class()
    return tuple(kinds[name]() for name in sorted(kinds.keys() - _LEFT_OUT))


def refuse_secrets(name: str, path: Path) -> None:
    """`ServelabError` with place and rule if a redacted member has a secret. Prompts of a workload are not read."""
    if name.startswith("results/workloads/") and path.suffix == ".parquet":
        return
    for place, text in _lines(path):
        if HASH_IN_LOCK.fullmatch(text.rstrip("\n")):
            continue
        for rule in rules():
            if any(rule.analyze_string(text)):
                what = f"looks like a secret ({rule.secret_type}, a rule of detect-secrets), which must not be archived"
                raise ServelabError(f"{name}: {place}: {what}; remove it from the file below the project's folder")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    if path.suffix == ".parquet":
        yield from ((place, text) for place, _, text in texts_of(path, bool))
        return
    with path.open("rb") as file:
        yield from ((f"line {number}", line.decode(errors="replace")) for number, line in enumerate(file, 1))
