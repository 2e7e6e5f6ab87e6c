"""Signs of failures that several engines share, from `failure_signs.yaml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from servelab.core.yaml_file import read_shipped

Kind = Literal["result", "environment", "outage"]


@dataclass(frozen=True)
class Sign:
    """A pattern for lines of an engine's log that say why it failed."""

    reason: str
    pattern: re.Pattern[str]
    kind: Kind = "result"
    """`result`: the configuration's own; `environment`: this node or installation; `outage`: may be over at once."""
    fault: str = ""
    """An environment's fault in words."""
    remedy: str = ""
    weak: bool = False
    """Whether it may also follow from another process's failure; it then counts only where no other cause is found."""
    general: bool = False
    """Whether a fault of another line explains it better."""


def signs(reason: str, *patterns: str) -> list[Sign]:
    """Signs of one reason that is the configuration's own; upper and lower case are equal."""
    return [Sign(reason, re.compile(pattern, re.IGNORECASE)) for pattern in patterns]


def _read(given: dict[str, Any]) -> Sign:
    pattern = re.compile("|".join(given.pop("patterns")), re.IGNORECASE)
    return Sign(pattern=pattern, **given)


_FILE = read_shipped(Path(__file__).with_suffix(".yaml"))
PORT_TAKEN, HELD_BY_OTHERS = _read(_FILE["port_taken"]), _read(_FILE["held_by_others"])
WRAPPER, DEATH, ERROR, NOISE, OUTER = (
    re.compile("|".join(_FILE[name]), re.IGNORECASE) for name in ("wrappers", "deaths", "errors", "noise", "outer")
)
COLLECTIVES, KILLED, HANG = (_read(_FILE[name]) for name in ("collectives", "killed", "hang"))
FAULTS = (PORT_TAKEN, HELD_BY_OTHERS, *map(_read, _FILE["faults"]))
COMMON = tuple(map(_read, _FILE["common"]))
PASSED_ON = re.compile(f"^({'|'.join(_FILE['passed_on'])})?({'|'.join(_FILE['ranks'])})?", re.IGNORECASE)
"""What the programs that pass lines on write before them."""
