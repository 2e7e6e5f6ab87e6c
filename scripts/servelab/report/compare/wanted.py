"""Which studies to compare, as a user names them, and their names in the comparison."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from servelab.core.errors import ConfigError

KINDS = ("studies", "recorded")
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True)
class Wanted:
    """One side of a comparison."""

    name: str
    """Short, for headings and file names."""
    folder: Path
    """`results/studies/<study>`, or such a folder in other results."""
    search: str | None
    """`studies/<study>` or `recorded/<study>` if this workflow makes it; None for results that already exist."""


def wanted_pairs(pairs: object, searches: Collection[str], results: Path) -> list[tuple[Wanted, Wanted]]:
    """The key `compare` of the configuration: pairs of studies by name, by `recorded/<study>`, or by their folder.

    `searches` are the studies that this workflow makes. A mistake is a `ConfigError`.
    """
    if not isinstance(pairs, list) or any(
        not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair)
        for pair in pairs
    ):
        raise ConfigError("config/config.yaml: compare: give pairs of studies, as `compare: [[first, second]]`")
    found = [(_wanted(one, searches, results), _wanted(other, searches, results)) for one, other in pairs]
    names = ["--".join(side.name for side in pair) for pair in found]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ConfigError(f"config/config.yaml: compare.{position}: {name} is given twice; remove one")
    return found


def names_of(folders: Sequence[Path]) -> list[str]:
    """Names of studies in these folders: the folder's own name, or the whole path if two names are equal."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [_slug(str(folder)) for folder in folders]


def _wanted(text: str, searches: Collection[str], results: Path) -> Wanted:
    kind, _, study = text.partition("/")
    named = [text] if kind in KINDS and _PLAIN.fullmatch(study) else []
    if _PLAIN.fullmatch(text):
        named = [f"{each}/{text}" for each in KINDS]
    for search in named:
        if search in searches:
            return Wanted(search.removeprefix("studies/").replace("/", "-"), results / search, search)
    for folder in [*(results / search for search in named), Path(text)]:
        if (folder / "study.json").exists():
            name = folder.relative_to(results) if folder.is_relative_to(results) else folder
            return Wanted(_slug(str(name).removeprefix("studies/")), folder, None)
    known = ", ".join(sorted(searches)) or "none"
    raise ConfigError(
        f"config/config.yaml: compare: `{text}` is no study of this configuration ({known}) and no folder with a "
        "study.json"
    )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-.")
