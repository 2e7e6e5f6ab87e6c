"""Reads a GGUF file's metadata."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from servelab.core.errors import ServelabError


class Tensor(NamedTuple):
    """A tensor of a GGUF file."""

    name: str
    dimensions: int
    """Those longer than 1."""
    elements: int
    size_bytes: int


_PART = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")


def part_names(name: str) -> list[str]:
    """Names of all files of a GGUF model by its first, as llama.cpp splits it; `ServelabError` for a later part."""
    match = _PART.fullmatch(name)
    if match is None:
        return [name]
    count = int(match["count"])
    names = [f"{match['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    if name != names[0]:
        raise ServelabError(f"{name}: is not the model's first part; name {names[0]}")
    return names


class Metadata:
    """Key-value pairs of a GGUF file, each decoded when it is read. `ServelabError` if the file cannot be read.

    A model in parts is named by its first file, which has the pairs; tensors are in all.
    """

    def __init__(self, path: Path) -> None:
        # Only who reads a file needs the library; scripts that know a model by its figures start without it.
        from gguf import GGUFReader

        names = part_names(path.name)
        try:
            self._readers = [GGUFReader(path.with_name(name)) for name in names]
        except (ValueError, IndexError, KeyError, OSError) as error:
            raise ServelabError(f"{path}: not a readable GGUF file: {error}") from None
        self.path = path

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default if the file does not have the key."""
        field = self._readers[0].get_field(key)
        return default if field is None else field.contents()

    def tensors(self) -> list[Tensor]:
        """Its tensors, without their values."""
        return [
            Tensor(each.name, sum(size > 1 for size in each.shape), int(each.n_elements), int(each.n_bytes))
            for reader in self._readers
            for each in reader.tensors
        ]

    @property
    def parameters(self) -> int:
        """The number of values in all tensors."""
        return sum(tensor.elements for tensor in self.tensors())

    def need(self, key: str) -> Any:
        """The value; `ServelabError` if the file does not have the key."""
        value = self.get(key)
        if value is None:
            raise ServelabError(f"{self.path}: the GGUF metadata has no `{key}`")
        return value
