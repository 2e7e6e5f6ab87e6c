"""The words of a `snakemake` command line for the words that a user gave to a subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.shipped import CHECKOUT, own_or_shipped

PROFILE = Path("profiles/default")
SNAKEFILE = Path("Snakefile")
_FOUND = ("Snakefile", "workflow/Snakefile")
"""What Snakemake runs by itself."""
_CONFIG = ("--config", "-C")


def snakemake_line(
    fixed: Sequence[str],
    words: Sequence[str],
    known: Sequence[str],
    profile: str | None = None,
    root: Path = CHECKOUT,
) -> list[str]:
    """Arguments of `snakemake`: a profile, what the subcommand fixes, the studies that `words` begin with, all others.

    `known` are the studies that there are, `profile` is Snakemake's own default, `root` the folder where it will run:
    if it has no workflow of its own, the checkout's is named. `ConfigError` for another study.
    """
    studies = list(takewhile(lambda word: not word.startswith("-"), words))
    for name in studies:
        if name not in known:
            raise ConfigError(f"config/studies/{name}.yaml: no such study{nearest(name, list(known))}")
    rest = list(words[len(studies) :])
    is_given = any(word == "--profile" or word.startswith("--profile=") for word in rest)
    line = [] if is_given or profile else ["--profile", _named(root, PROFILE)]
    if not any((root / each).is_file() for each in _FOUND):
        line += ["--snakefile", _named(root, SNAKEFILE)]
    line += fixed
    if studies:
        # Snakemake reads every word after `--config` as a key, and of two `--config` only the last.
        key = f"studies=[{','.join(studies)}]"
        at = next((place for place, word in enumerate(rest) if word in (*_CONFIG, "--")), len(rest))
        given = 1 if rest[at:] and rest[at] in _CONFIG else 0
        rest[at : at + given] = ["--config", key]
    return line + rest


def _named(root: Path, name: Path) -> str:
    """A file of the folder where Snakemake runs, or the checkout's, as a word of its command line."""
    found = own_or_shipped(root, name)
    return str(found.relative_to(root) if found.is_relative_to(root) else found)
