"""Forms of the recommended command, ready to copy: each is one file that registers itself.

A form puts the command around which it is built on a machine, in a container or on a cluster. It invents nothing: where
the study does not know an image, a placeholder in angle brackets stands there, with a comment that says so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from servelab.devices import DEVICES, Device, DeviceKind
from servelab.registry import Registry

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Deployment:
    """What is to be served, and on what."""

    study: str
    command: str
    """The serving command for reading, environment variables in front."""
    engine: str
    engine_version: str
    device: str
    """Kind of device."""
    accelerators: int
    image: str | None
    """The container image that it was measured in, by digest; None where no container was used."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the server."""
        return dict(_parts(self.command)[0])

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return _parts(self.command)[1]

    @property
    def release(self) -> str:
        """Engine and version, for people."""
        return f"{self.engine} {self.engine_version}"

    @property
    def kind(self) -> DeviceKind:
        """How its devices are asked for."""
        return DEVICES.get(self.device)

    @property
    def devices(self) -> list[Device]:
        """The first of a machine, as many as it needs, by their index."""
        return [Device(index=str(index), key=str(index), name=self.device) for index in range(self.accelerators)]

    @property
    def image_or_placeholder(self) -> str:
        """The image, or what to put one in for."""
        return self.image or f"<IMAGE@sha256:DIGEST with {self.release}>"

    @property
    def image_remark(self) -> str:
        """What to say of the image."""
        if self.image:
            return "The image that it was measured in."
        return "PLACEHOLDER: no run of this study was in a container. Put an image with this release in, by its digest."

    @property
    def model_remark(self) -> str:
        """What to say of the weights, which the command names for reading."""
        return "The engine takes the model from the hub by its name; else mount its folder and name that."


@dataclass(frozen=True)
class Form:
    """One way to run it; `build` gives the text to copy."""

    name: str
    title: str
    position: int
    """Order among the forms."""
    language: Literal["sh", "yaml"]
    build: Callable[[Deployment], str]


FORMS: Registry[Form] = Registry("form of the command")


def forms_in_order() -> list[Form]:
    """All forms, as a reader is shown them."""
    return sorted(FORMS, key=lambda form: form.position)


def comment(*sentences: str) -> list[str]:
    """Lines of a comment in a script."""
    return [f"# {sentence}" for sentence in sentences]


def assigned(name: str, value: str) -> str:
    """A variable's assignment in a shell."""
    return f"{name}={shlex.quote(value)}"


class Expanded(str):
    """A word that a shell is to expand: it is written as it stands."""


def continued(groups: Iterable[Sequence[str]]) -> str:
    """A shell command over several lines, a group of words on each, quoted where they must be."""
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
