"""Adds a candidate to a study whose proof has not begun; it is tried on the winner of the search.

The candidate changes engine, weights, arguments or accelerators of that winner. Whether it helps is for the proof to
say, which takes no more candidates.
"""

import argparse
from pathlib import Path

from servelab.cli.checkout import STUDIES
from servelab.core.errors import ConfigError
from servelab.report.json_output import ProposeOutput, print_line
from servelab.search.planning import shown
from servelab.search.project import load_project
from servelab.study.project import Project
from servelab.tune.added_candidate import add_candidate
from servelab.tune.typed_command import with_flags


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", help="name of the study")
    parser.add_argument("--engine", help="the study's name for another engine (default: the baseline's)")
    parser.add_argument(
        "--argument", action="append", default=[], metavar="NAME[=VALUE]", help="as max-num-seqs=512; may be repeated"
    )
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE", help="environment variable")
    parser.add_argument("--weights", help="other weights: a name in the study's model.variants")
    parser.add_argument("--accelerators", type=int, metavar="N", help="accelerators to use")
    parser.add_argument("--label", help="name in tables (default: made of the changes)")
    parser.add_argument("--reason", default="", help="why it may help; a comment in the study")
    parser.add_argument("--json", action="store_true", help="print the candidate as JSON")
    return parser


def main(arguments: argparse.Namespace) -> None:
    file = STUDIES / f"{arguments.study}.yaml"
    candidate = read_candidate(arguments, load_project(file, Path()))
    changes = add_candidate(file, Path(), Path("results"), candidate, arguments.reason)
    if arguments.json:
        print_line(ProposeOutput(study=arguments.study, candidate=candidate, effective=changes and dict(changes)))
        return
    served = f"; against the baseline, as served: {shown(changes)}" if changes else ""
    print(f"{file}: stage `proposed` has it{served}. `servelab run {arguments.study}` measures it after the search.")


def read_candidate(arguments: argparse.Namespace, project: Project) -> dict[str, object]:
    """The candidate, as a study has it."""
    alias = arguments.engine or str(project.study.baseline.engine)
    if alias not in project.study.engines:
        raise ConfigError(f"{project.file}: --engine {alias}: the study has {', '.join(project.study.engines)}")
    flags = [each if each.startswith("-") else f"--{each}" for each in arguments.argument]
    command = with_flags(project.engine(alias), ["MODEL", *flags], {}, None)
    if command.left_out:
        name, why = next(iter(command.left_out.items()))
        raise ConfigError(f"--argument {name}: may not be set: {why}")
    if wrong := [each for each in arguments.variable if "=" not in each]:
        raise ConfigError(f"--variable {wrong[0]}: write NAME=VALUE")
    given = {
        "label": arguments.label,
        "engine": arguments.engine,
        "model": arguments.weights,
        "options": command.options,
        "arguments": command.arguments,
        "environment_variables": dict(each.split("=", 1) for each in arguments.variable),
        "accelerators": arguments.accelerators,
    }
    return {key: value for key, value in given.items() if value}
