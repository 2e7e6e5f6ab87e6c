"""Evidence: what the options of an engine were compared with, release by release. docs/support.md is made of it.

`tests/unit/test_engine_flags.py` compares every option with what each release takes (`tests/data/flags`), and
`tests/engines/test_options_run.py` serves with those that are said to have been run.
"""

from __future__ import annotations

from dataclasses import dataclass

HOW = {
    "run": "A test starts a real server of this release with it.",
    "parser": "Flag, type and choices are those of the argument parser in the released package.",
    "source": "Name, type and choices are those of the public source at its time; its package was not at hand.",
    "page": "Named on the vendor's page on this release; its range may be a newer page's (docs/engines.md).",
}


@dataclass(frozen=True)
class Checked:
    """One release that an engine's options were compared with."""

    release: str
    how: str
    """Of `HOW`, for every option that the release has."""
    run: tuple[str, ...] = ()
    """Options that were more than compared: a real server runs with them."""

    def of(self, option: str) -> str:
        """How an option was checked."""
        return "run" if option in self.run else self.how
