"""The part of a run's identity that its engine's adapter and its runtime give to a server."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from servelab.core.run_spec import ArgumentValue, ServedBalancer, ServedSpec
from servelab.engines.adapters import PLANNED_MODEL, Engine
from servelab.engines.runtimes import RUNTIMES
from servelab.engines.server_to_start import Options, Serve, planned_span
from servelab.machine.devices import DEVICES

_PYTHON, _FOLDER = Path("python"), Path("/folder")
"""Placeholders for paths, in what a server is given."""
_PACKAGE = Path(__file__).parents[1]


def serve_of(
    engine: Engine, model_id: str, options: Options, arguments: Mapping[str, ArgumentValue], count: int, nodes: int = 1
) -> Serve:
    """A server of a model on `count` accelerators of `nodes` nodes; placeholders for paths, ports and addresses."""
    return Serve(
        python=_PYTHON,
        model_path=PLANNED_MODEL,
        model_name=engine.served_name(model_id),
        port=0,
        options=options,
        arguments=arguments,
        count=count,
        span=planned_span(nodes),
    )


def render_served(
    engine: Engine, serve: Serve, runtime: str, device: str, balancer: ServedBalancer | None = None
) -> ServedSpec:
    """The command, files and variables of a server, with placeholders for what differs from one start to the next.

    `runtime` and `device` are names; a balancer is in front of several such servers. Two starts with equal results are
    given the same. `ConfigError` if the engine cannot serve with these options.
    """
    trial = replace(
        serve,
        python=_PYTHON,
        model_path=PLANNED_MODEL,
        port=0,
        more_ports=(),
        host="127.0.0.1",
        folder=_FOLDER,
        span=planned_span(serve.nodes),
    )
    others = [replace(trial, span=replace(trial.span, rank=rank)) for rank in range(1, serve.nodes) if trial.span]
    return ServedSpec(
        command=tuple(_named_by_content(part) for part in engine.command(trial)),
        other_nodes=tuple(tuple(engine.command(other)) for other in others),
        environment=engine.environment(trial),
        files=engine.files(trial),
        request_body=engine.body(trial.arguments),
        container=tuple(map(_named_by_content, RUNTIMES.get(runtime).container(DEVICES.get(device), serve.count))),
        cache_reset=engine.cache_reset_with(serve.options, serve.arguments),
        balancer=balancer,
    )


def _named_by_content(part: str) -> str:
    """A part of a command; a program of this package by its name and code, wherever the package is."""
    if not part.endswith(".py"):
        return part
    path = Path(part)
    return f"{path.name}@{_code_sha256(path)[:12]}" if path.is_relative_to(_PACKAGE) else part


@cache
def _code_sha256(program: Path) -> str:
    """sha256 of a program's syntax tree, in hex: comments and layout do not count."""
    return hashlib.sha256(ast.dump(ast.parse(program.read_bytes())).encode()).hexdigest()
