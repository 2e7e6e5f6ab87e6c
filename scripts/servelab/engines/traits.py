"""How an engine behaves, as far as it decides what is worth a try on it and how long it takes to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from servelab.core.run_spec import ArgumentValue

Settings = tuple[dict[str, ArgumentValue], dict[str, ArgumentValue]]
"""Options and arguments."""


@dataclass(frozen=True)
class GraphLimit:
    """The argument with the number of sequences of the largest CUDA graph."""

    argument: str
    default: int = 0
    """Where `Engine.defaults` does not know it."""
    takes_next: bool = True
    """Whether a batch between two graphs takes the larger one without `needs`."""
    needs: Mapping[str, ArgumentValue] = field(default_factory=dict)
    """Arguments beside it."""


@dataclass(frozen=True)
class Traits:
    """Traits of an engine; the defaults are those of an unknown one."""

    starts_in_s: float = 40.0
    """Seconds until it reads weights: imports, workers, memory."""
    compiles: bool = True
    """Whether it compiles or captures graphs at its start, unless it is eager."""
    binds_threads: bool = True
    """Whether it keeps its threads on their CPUs by itself."""
    host_settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Label → environment variable and value with which its host gives work to accelerators faster, as a rule."""
    made_weights: Mapping[str, Mapping[str, ArgumentValue]] = field(default_factory=dict)
    """Number format that it makes of 16-bit weights at its start → the arguments for it."""
    stored_weights: tuple[str, ...] = ()
    """Number formats that it serves on boards that cannot multiply them, in 16 bits; the best first."""
    own_weights: Mapping[str, Mapping[str, ArgumentValue]] = field(default_factory=dict)
    """The only number formats of smaller weights on its boards, if these have formats of their own → arguments."""
    fp8_kv_cache: str | None = None
    """Value of `kv_cache_dtype` for FP8 numbers; None if it has none."""
    share_argument: str | None = None
    """The argument that is `memory_share`, if that is no option of it."""
    copies_attention: str | None = None
    """The argument for copies of attention on the accelerators of one server; None if only whole servers are copied."""
    text_only: str | None = None
    """The switch that leaves out a model's vision part; None if it is not known to have one."""
    graphs: GraphLimit | None = None
    """None if the largest graph cannot be set, or is not known."""
    forecast_name: str | None = None
    """Its name in the tables of kernel timings; None if they do not have it."""
