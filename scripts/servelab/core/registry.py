"""Registry: a variant (engine, client, workload, chart, runtime) is one file that registers itself.

A package's `__init__.py` makes a `Registry` and calls `load(__name__)`, which imports every module of the package; each
registers its variants. Generic code asks the registry by name and never compares names.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Generic, TypeVar

from servelab.core.errors import ConfigError


def nearest(name: str, names: list[str]) -> str:
    """The end of a message on a wrong name: the nearest valid name, if one is near, and all valid names."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean `{close[0]}`?" if close else "."
    return f"{hint} Valid: {', '.join(sorted(names)) or 'none'}"


_installed = cache(entry_points)
_others: set[str] = set()
"""Top modules of other packages that have variants here."""


def plugged_in() -> dict[Path, str]:
    """The imported files of these packages, with the names of their modules."""
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in _others}
    return {Path(module.__file__): name for name, module in sorted(modules.items()) if module.__file__}


T = TypeVar("T")


class Registry(Generic[T]):
    """Variants of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._variants: dict[str, T] = {}

    def register(self, name: str, variant: T) -> T:
        """Adds a variant and returns it; `ValueError` if the name is taken."""
        if name in self._variants:
            raise ValueError(f"two {self.kind} variants are named {name}")
        self._variants[name] = variant
        return variant

    def load(self, package: str) -> None:
        """Imports every module of a package, so that each registers its variants; then those of other packages.

        These name a module of theirs in the entry point group `package`; `ConfigError` if it cannot be imported.
        """
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")
        for entry in _installed().select(group=package):
            _others.add(entry.module.partition(".")[0])
            try:
                importlib.import_module(entry.module)
            except Exception as error:
                raise ConfigError(f"entry point {entry.name} of {package}, {entry.module}: {error!r}") from error

    def get(self, name: str) -> T:
        """The variant of that name; `ConfigError` with the nearest valid name if there is none."""
        try:
            return self._variants[name]
        except KeyError:
            raise ConfigError(f"unknown {self.kind} `{name}`{nearest(name, self.names())}") from None

    def names(self) -> list[str]:
        """The names of all variants, sorted."""
        return sorted(self._variants)

    def __iter__(self) -> Iterator[T]:
        """The variants in order of name."""
        return (self._variants[name] for name in self.names())
