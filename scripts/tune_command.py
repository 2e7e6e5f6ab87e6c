"""Begins a study from the command that serves a model today: reads it, and proposes candidates with their reasons.

Everything after `--` is the command, as typed: `vllm serve …`, `python -m sglang.launch_server …`, `trtllm-serve …`,
`llama-server …`, a `docker run` line around it, or the name of a compose or Kubernetes file. Without a command,
`--model` is served as the engine does it by itself, changed only as far as it needs to start (`servelab init`).
"""

import argparse
import sys
from dataclasses import fields, replace
from pathlib import Path

import yaml

from servelab.cli.first_study import AskedHardware, asked_hardware, first_model, known_engines, write_study
from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.machine.devices import DEVICES
from servelab.report.json_output import TuneOutput, print_line
from servelab.tune.begin import Begun, TuneRequest, begin
from servelab.tune.own_load import hours
from servelab.tune.proposals import named
from servelab.tune.study_text import explained
from servelab.tune.typed_command import TypedCommand, read_command


class Parser(argparse.ArgumentParser):
    """Leaves all words after `--` as they are; argparse would take their flags for its own.

    They are read at once: the files that they name are those of the folder where they were typed.
    """

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        """The options, and the command after `--` as `command`."""
        words = sys.argv[1:] if args is None else list(args)
        at = words.index("--") if "--" in words else len(words)
        parsed = super().parse_args(words[:at], namespace)
        command = read_command(words[at + 1 :]) if words[at + 1 :] else None
        parsed.command = command and replace(command, model=local_or_hub(command.model))
        return parsed


def options() -> argparse.ArgumentParser:
    parser = Parser(
        usage="%(prog)s NAME [OPTION]... -- COMMAND\n       %(prog)s NAME --model MODEL [OPTION]...",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="name of the study: config/studies/<name>.yaml")
    parser.add_argument("--model", help="without a command: a path, or a repository of the hub, as owner/name")
    parser.add_argument("--engine", help="without a command: engine to serve it (default: the first of --engines)")
    parser.add_argument("--users", type=int, metavar="N", help="requests in flight on the node")
    parser.add_argument("--rate", type=float, metavar="R", help="requests a second (default: --users at any time)")
    parser.add_argument("--prompt", type=int, metavar="TOKENS", dest="prompt_tokens", help="tokens of a prompt")
    parser.add_argument("--answer", type=int, metavar="TOKENS", dest="answer_tokens", help="tokens of an answer")
    parser.add_argument("--workload", help="name in config/workloads.yaml (default: as other studies on such hardware)")
    parser.add_argument("--slo", action="append", default=[], dest="limits", help="as 'ttft_ms p99 2000'; repeatable")
    parser.add_argument("--question", metavar="METRIC", default="total_tokens_per_s", dest="metric", help="to improve")
    parser.add_argument("--trace", type=Path, help="recorded traffic to replay: a file of Mooncake, BurstGPT or Azure")
    parser.add_argument("--budget", metavar="8h", help="most hours of the node for search and proof")
    parser.add_argument(
        "--predict", action="store_true", dest="is_predicted", help="search in the order of predicted speeds; 82 MB"
    )
    parser.add_argument("--explain", action="store_true", help="print the levers that are not proposed, and why")
    parser.add_argument("--most", type=int, default=12, help="candidates at most (default: 12)")
    parser.add_argument("--hardware", help="name of the accelerator; default: what this machine has")
    parser.add_argument("--device", choices=DEVICES.names(), help="kind of device (default: nvidia with --hardware)")
    parser.add_argument("--per-node", type=int, help="accelerators of a node (default: 1 with --hardware)")
    parser.add_argument("--engines", nargs="+", default=[], help="other engines to try")
    parser.add_argument("--all-engines", action="store_true", help="try every engine that is known for such hardware")
    parser.add_argument("--revision", help="commit of the model's repository; default: the hub is asked for its newest")
    parser.add_argument("--json", action="store_true", help="print what would be written, and ask no network")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    return parser


def main(arguments: argparse.Namespace) -> None:
    hardware = asked_hardware(arguments.hardware, arguments.device, arguments.per_node)
    command = arguments.command or plain_command(arguments, hardware)
    arguments.engines = [each for each in arguments.engines if each != command.engine]
    given = {each.name: getattr(arguments, each.name) for each in fields(TuneRequest) if hasattr(arguments, each.name)}
    asked = TuneRequest(
        **{**given, "command": command, "hardware": hardware},
        makes_start=arguments.command is None,
        budget_hours=hours(arguments.budget) if arguments.budget else None,
    )
    begun = begin(asked, arguments.root, None if arguments.json else first_model)
    if arguments.json:
        print_line(TuneOutput.model_validate(begun.as_json()))
        return
    write(arguments.name, begun, arguments.root, is_explained=arguments.explain)


def plain_command(arguments: argparse.Namespace, hardware: AskedHardware) -> TypedCommand:
    """The engine's plain command for `--model`."""
    if arguments.model is None:
        raise ConfigError("give the command that serves the model after `--`: servelab tune NAME -- vllm serve …")
    known = sorted(known_engines(arguments.root, hardware.device))
    engine = arguments.engine or next(iter([*arguments.engines, *known]), None)
    if engine not in known:
        raise ConfigError(f"--engine {engine}: not known on {hardware.device}{nearest(str(engine), known)}")
    return TypedCommand(engine=engine, model=local_or_hub(arguments.model))


def local_or_hub(model: str) -> str:
    """The absolute path of a model that is here, or its name on the hub."""
    path = Path(model).expanduser()
    return str(path.resolve()) if path.exists() else model


def write(name: str, begun: Begun, root: Path, *, is_explained: bool = False) -> None:
    """Writes a study, and prints its candidates with their reasons."""
    added = {
        each: yaml.safe_dump(entries, sort_keys=False, allow_unicode=True) for each, entries in begun.added.items()
    }
    file = write_study(name, begun.text(), root, added)
    for line in begun.notes:
        print(line)
    print(f"{len(begun.proposed.candidates)} candidates:")
    for lever, proposal in begun.proposed.candidates:
        print(f"  {named(proposal):32} {explained(lever, proposal)}")
    if is_explained:
        print("Not proposed:")
        for what, why in begun.proposed.left_out.items():
            print(f"  {what:32} {why}")
    print(f"{file}: written and checked. Then:")
    for command in ("check", "plan", "run"):
        print(f"    servelab {command} {name}")
