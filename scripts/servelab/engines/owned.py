"""What a study may not set: flags and variables that Servelab sets for every server, under each name an engine reads.

An adapter lists them, and its flags with several names, as data; `names_of` and `refused` compare what a study gives.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from servelab.core.run_spec import ArgumentValue


@dataclass(frozen=True)
class Owned:
    """Flags and variables that belong to Servelab for one reason."""

    why: str
    flags: tuple[str, ...] = ()
    """One name of each; `Engine.aliases` has the others."""
    variables: tuple[str, ...] = ()
    """Names; `*` stands for any characters."""


ADDRESS = "a server answers on 127.0.0.1 only, on a free port that Servelab leases, without a key"
MODEL = "the weights and their name are the study's `model`"
ONE_NODE = "the nodes of a run are the study's `hardware.nodes`"
A_FILE = "a file's content is no part of a run's identity; give its settings one by one"
METRICS = "Servelab reads the server's metrics"

ALL_ENGINES = (
    Owned(
        "Servelab reserves the devices of a run",
        variables=(
            *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
            *("ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "ASCEND_DEVICE_ID"),
        ),
    ),
    Owned("an engine's packages are those of its lock", variables=("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")),
    Owned(ADDRESS, variables=("HOST_IP",)),
    Owned(ONE_NODE, variables=("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "WORLD_SIZE", "LOCAL_RANK", "RANK")),
    Owned("they describe the job that a run is in", variables=("SLURM_*", "SERVELAB_*")),
)
"""Variables that no study may set, whatever its engines."""

_NAME = re.compile(r"-{0,2}[A-Za-z][\w.+-]*(=.*)?", re.DOTALL)
_FLAG_LIKE = re.compile(r"--?[A-Za-z]")


def bare(given: str) -> str:
    """The name of a flag without dashes, value and `no-`; `_` and `-` are equal up to the first dot, as in engines."""
    name, dot, key = given.partition("=")[0].lstrip("-").partition(".")
    return name.replace("_", "-").removeprefix("no-") + dot + key


class Names:
    """Names of an engine's flags: which are the same flag, and which a parser takes for another."""

    def __init__(self, aliases: Iterable[Collection[str]], *, abbreviates: bool, prefix: str = "") -> None:
        """`aliases` are the names of one flag each, its first name first; `prefix` is no part of a name."""
        self._prefix = prefix
        self._first = {bare(name): bare(next(iter(group))) for group in aliases for name in group}
        self._abbreviates = abbreviates
        self._known: dict[str, str] = {}

    def of(self, given: str) -> str:
        """The first name of a flag; a key after a dot is a part of it."""
        if (name := self._known.get(given)) is None:  # thousands of candidates have the same few flags
            name = self._known[given] = self._of(given)
        return name

    def _of(self, given: str) -> str:
        name = bare(given.removeprefix(self._prefix))
        letter = name[:1]
        if given.startswith("-") and not given.startswith("--") and name not in self._first and letter in self._first:
            return self._first[letter]  # `-q4` is `-q 4`
        base, dot, key = name.partition(".")
        return self._first.get(name) or self._first.get(base, base) + dot + key

    def abbreviated(self, given: str, flags: Iterable[str]) -> str | None:
        """The flag among these, or among those with aliases, that the parser takes an unknown name for."""
        name, flags = bare(given.removeprefix(self._prefix)), [*flags, *self._first]
        if not self._abbreviates or name in flags:
            return None
        return next((flag for flag in flags if flag.startswith(name)), None)


def refused_arguments(
    own: Mapping[str, str], names: Names, taken: Mapping[str, str], arguments: Mapping[str, ArgumentValue]
) -> dict[str, str]:
    """Arguments that a study may not give → why, with the fix.

    `own` are first names of flags that Servelab sets → why; `taken` are those that options set → the option.
    """
    seen: dict[str, str] = {}
    refused: dict[str, str] = {}
    for given, value in arguments.items():
        name = names.of(given)
        base = name.partition(".")[0]
        if not _NAME.fullmatch(given):
            refused[given] = "is not the name of an argument; write a name and its value, as in `{max-num-seqs: 8}`"
        elif isinstance(value, str) and _FLAG_LIKE.match(value):
            refused[given] = f"has the value `{value}`, which the engine reads as another argument; give it a key"
        elif why := own.get(name) or own.get(base):
            refused[given] = f"may not be set: {why}; remove it"
        elif name in seen:
            refused[given] = f"is the same as the argument `{seen[name]}`; keep one of them"
        elif by := taken.get(name) or taken.get(base):
            refused[given] = f"is also set by the option `{by}`; remove one"
        elif meant := names.abbreviated(given, [*own, *taken, *seen]):
            refused[given] = f"begins the name of `--{meant}`, which the engine takes it for; write it in full"
        seen.setdefault(name, given)
    return refused


def refused_variables(owned: Iterable[Owned], taken: Mapping[str, str], variables: Iterable[str]) -> dict[str, str]:
    """Variables that a study may not set → why, with the fix; `taken` are variables that options set → the option."""
    refused: dict[str, str] = {}
    for given in variables:
        why = next((part.why for part in owned for name in part.variables if fnmatchcase(given, name)), None)
        if why:
            refused[given] = f"may not be set: {why}; remove it"
        elif given in taken:
            refused[given] = f"is also set by the option `{taken[given]}`; remove one"
    return refused
