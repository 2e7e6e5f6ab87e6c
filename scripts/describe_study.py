"""Writes what the report says of a study: titles, model, hardware, engines, objective, protocol."""

import argparse
from pathlib import Path

from servelab.cli import run
from servelab.files import write_json
from servelab.project import load_project


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that config/ and envs/ lie in")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    project = load_project(arguments.study, arguments.root)
    content = project.study.model_dump(mode="json")
    content["workloads"] = {name: project.workloads[name].title for name in project.study.workloads}
    content["stages"] = [
        {"name": stage.name, "title": stage.title or stage.name, "candidates": [each.name for each in stage.candidates]}
        for stage in project.study.stages
    ]
    write_json(arguments.output, content)


if __name__ == "__main__":
    run(main)
