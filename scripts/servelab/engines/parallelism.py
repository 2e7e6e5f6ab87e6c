"""How a model is split over accelerators."""

from __future__ import annotations

from dataclasses import dataclass

PARALLEL_OPTIONS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Options that use several accelerators, in the order of `Parallel`."""


@dataclass(frozen=True)
class Parallel:
    """Sizes of the three ways to use several accelerators; they multiply."""

    tensor: int = 1
    """Accelerators that share each layer."""
    pipeline: int = 1
    """Groups of accelerators, each with a part of the layers."""
    data: int = 1
    """Copies of the model."""

    @property
    def accelerators(self) -> int:
        """Number of accelerators in total."""
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        return f"tensor {self.tensor} × pipeline {self.pipeline} × data {self.data}"
