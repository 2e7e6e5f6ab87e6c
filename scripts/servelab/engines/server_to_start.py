"""A server to start, on one node or several, as an engine's adapter gets it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from servelab.core.run_spec import ArgumentValue

Options = Mapping[str, ArgumentValue]


@dataclass(frozen=True)
class Span:
    """One node's place in a server that spans several nodes."""

    addresses: tuple[str, ...]
    """Addresses of the nodes, by rank; the first node's part answers requests."""
    rank: int = 0
    port: int = 0
    """Where the parts meet, on the first node's address."""
    interface: str = "interface"
    """The network interface of this node with its address."""

    @property
    def own(self) -> str:
        """The address of this node."""
        return self.addresses[self.rank]


def planned_span(nodes: int) -> Span | None:
    """Stands for the nodes in what is planned; None for one node."""
    return Span(tuple(f"node{rank}" for rank in range(nodes))) if nodes > 1 else None


@dataclass(frozen=True)
class Serve:
    """One server to start, or its part on one of several nodes."""

    python: Path
    """Interpreter of the engine's environment, or the program of an engine that is not written in Python."""
    model_path: Path
    model_name: str
    """The model name in requests."""
    port: int
    options: Options
    arguments: Mapping[str, ArgumentValue]
    count: int = 1
    """Number of accelerators it may use, on all nodes together."""
    host: str = "127.0.0.1"
    more_ports: tuple[int, ...] = ()
    """`Engine.more_ports` ports, or none: the engine then chooses its own."""
    folder: Path = Path()
    """Folder for the engine's files for this server."""
    span: Span | None = None
    """None on one node."""

    @property
    def nodes(self) -> int:
        """Number of nodes that it spans."""
        return len(self.span.addresses) if self.span else 1


_NO_CUDA = (
    r"libcuda\.so|no cuda gpus|nvidia driver|nvml|failed to infer device type|cuda driver|device_count|no cuda runtime"
)
_NO_NPU = r"libascendcl|torch_npu|libhccl|ASCEND|acl\b"
NO_DEVICE = {"nvidia": _NO_CUDA, "ascend": _NO_NPU}
"""Device → errors of an import that only say that no device is there."""


@dataclass(frozen=True)
class Setting:
    """The settings of a study for a server on which an environment's checks depend."""

    options: Mapping[str, ArgumentValue]
    arguments: Mapping[str, ArgumentValue]
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Kernel:
    """A package with kernels that some servers need. A server needs it if all that is given here applies to it."""

    package: str
    modules: tuple[str, ...]
    """Of the package; all must be installed."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Option, argument or variable → pattern of the values that ask for it; one of them is enough. Empty: all do."""
    unless: Mapping[str, str] = field(default_factory=dict)
    """Variable → pattern of the values that switch it off."""
    models: Mapping[str, str] = field(default_factory=dict)
    """`model_type` or `quant_method` in config.json → pattern of the values; all must fit. Empty: every model."""
    device: str = "nvidia"
    is_built: bool = False
    """Whether its kernels are built when they are first used, by a CUDA compiler."""
    prebuilt: tuple[str, ...] = ()
    """Modules with these kernels, built already."""
    since: str = "0"
    """First release that needs it."""

    def asked_by(self, version: str, device: str, model: Mapping[str, str], settings: Iterable[Setting]) -> str | None:
        """The setting that asks for it, for a message; None if nothing does. `model` has the keys of `models`."""
        if device != self.device or Version(version) < Version(self.since):
            return None
        if not all(re.fullmatch(pattern, model.get(key, "")) for key, pattern in self.models.items()):
            return None
        for setting in settings:
            given = {**setting.variables, **{name.lstrip("-"): value for name, value in setting.arguments.items()}}
            given |= setting.options
            if any(re.fullmatch(pattern, str(given.get(name, ""))) for name, pattern in self.unless.items()):
                continue
            if not self.values:
                return ", ".join(f"{key}: {model[key]}" for key in self.models) or "every model"
            for name, pattern in self.values.items():
                if name in given and re.fullmatch(pattern, str(given[name]), re.IGNORECASE):
                    return f"{name}: {given[name]}"
        return None


@dataclass(frozen=True)
class EnvironmentFacts:
    """How an engine's parts are loaded in its environment: `module:name` or `file.py:name`, the first that is found."""

    application: tuple[str, ...]
    """The runtime that serves."""
    parse: tuple[str, ...] = ()
    """Takes a list of flags, or …"""
    fill_parser: tuple[str, ...] = ()
    """… adds all flags to a parser of `parser_class`."""
    parser_class: tuple[str, ...] = ("argparse:ArgumentParser",)
    base_flags: tuple[str, ...] = ()
    """Flags without which it parses nothing."""
    tokenizer: tuple[str, ...] = ()
    """Takes the model's folder and returns its tokenizer."""
    configuration: tuple[str, ...] = ()
    """Takes the model's folder and `trust_remote_code`, and returns its configuration."""
    reads_keys_before: Mapping[str, str] = field(default_factory=dict)
    """Key of config.json that it reads as an attribute of the configuration → first release that does not."""
    stand_in: tuple[str, ...] = ()
    """(module, attribute, class) by which it can be loaded without its device."""
    kernels: tuple[Kernel, ...] = ()

    def read_keys(self, version: str) -> list[str]:
        """Keys of config.json that this release reads as attributes."""
        return [key for key, end in self.reads_keys_before.items() if Version(version) < Version(end)]
