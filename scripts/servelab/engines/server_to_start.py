"""A server to start, on one node or several, as an engine's adapter gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    launcher: Path = Path("/launcher")
    """Program on the first node that runs a command on another: `launcher <address> <command> …`."""

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
