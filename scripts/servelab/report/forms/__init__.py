"""Forms of the recommended command that start as they are printed: each is one file that registers itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from servelab.core.registry import Registry
from servelab.machine.devices import DEVICES, Device, DeviceKind

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Deployment:
    """A command with the hardware that it serves on."""

    study: str
    command: str
    """The serving command for reading, environment variables in front."""
    engine: str
    engine_version: str
    device: str
    """Kind of device."""
    accelerators: int
    model_has_name: bool
    """Whether the engine finds the weights by the name in the command, on any machine."""
    image: str | None
    """The container image that it was measured in, by digest; None where no container was used."""
    launch_command: str | None = None
    """The command as it was measured, with this machine's paths; None for a recorded study."""
    nodes: int = 1
    """More than one: the command is typed on each."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the server."""
        return dict(_parts(self.command)[0])

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return _parts(self.command)[1]

    @property
    def kind(self) -> DeviceKind:
        """How its devices are requested."""
        return DEVICES.get(self.device)

    @property
    def devices(self) -> list[Device]:
        """The first devices of a machine, as many as it needs, by their index."""
        return [Device(index=str(index), key=str(index), name=self.device) for index in range(self.accelerators)]


@dataclass(frozen=True)
class Form:
    """One way to start the server; `build` gives the text to copy, None where the study lacks what the form needs."""

    name: str
    title: str
    position: int
    """Order among the forms."""
    build: Callable[[Deployment], str | None]


FORMS: Registry[Form] = Registry("form of the command")


def forms_in_order() -> list[Form]:
    """All forms, in the order of the report."""
    return sorted(FORMS, key=lambda form: form.position)


def assigned(name: str, value: str) -> str:
    """A variable's assignment in a shell."""
    return f"{name}={shlex.quote(value)}"


class Expanded(str):
    """A word that a shell expands: it is written without quotes."""


def continued(groups: Iterable[Sequence[str]]) -> str:
    """A shell command over several lines, a group of words on each, quoted where needed."""
    return " \\\n  ".join(" ".join(_quoted(word) for word in group) for group in groups if group)


def _quoted(word: str) -> str:
    return word if isinstance(word, Expanded) else shlex.quote(word)


def _parts(command: str) -> tuple[list[tuple[str, str]], list[str]]:
    words = shlex.split(command)
    variables: list[tuple[str, str]] = []
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        variables.append((found[1], found[2]))
        words = words[1:]
    return variables, words


FORMS.load(__name__)
