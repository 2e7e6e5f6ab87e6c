"""How a model is laid out over accelerators, and where a study has set what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servelab.spec import ArgumentValue

PARALLEL_OPTIONS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Options that use several accelerators, in the order of `Parallel`."""


@dataclass(frozen=True)
class Parallel:
    """Sizes of the three ways to use several accelerators; they multiply."""

    tensor: int = 1
    """Accelerators that share each layer."""
    pipeline: int = 1
    """Groups that the layers are dealt out over."""
    data: int = 1
    """Copies of the model."""

    @property
    def accelerators(self) -> int:
        """Accelerators that all of it takes."""
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        return f"tensor {self.tensor} × pipeline {self.pipeline} × data {self.data}"


def argument(arguments: Mapping[str, ArgumentValue], *flags: str) -> ArgumentValue:
    """The value of the first of these flags that is among a study's arguments, true for a bare one; None if none is."""
    given = {_bare(name): True if value is None else value for name, value in arguments.items()}
    return next((given[_bare(flag)] for flag in flags if _bare(flag) in given), None)


def _bare(flag: str) -> str:
    """A flag without its dashes in front; studies may leave them out, and engines take `_` for `-`."""
    return flag.lstrip("-").replace("_", "-")
