"""Checks without a device that an engine's environment can serve a model with what studies set; exits 2 if not."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.engines.runtimes import read_environment
from servelab.measure.environment_gate import CheckedEnvironment, check_environment, refuse_failed
from servelab.search.project import load_project
from servelab.study.spec_builder import served_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=Path, nargs="+", required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    parser.add_argument("--environment", type=Path, required=True, help="environment.json of the engine")
    parser.add_argument("--model", type=Path, required=True, help="model.json of the model that is served")
    parser.add_argument("--output", type=Path, help="file for the checks; none if one failed")
    arguments = parser.parse_args()

    environment = read_environment(arguments.environment)
    projects = [load_project(file, arguments.root) for file in arguments.studies]
    used = [
        (project, alias)
        for project in projects
        for alias in project.study.engines
        if project.environment_sha256(alias) == environment.lock_sha256
    ]
    if not used:
        raise ConfigError(f"{arguments.environment}: no engine of these studies has the lock it was built from")
    project, alias = used[0]
    engine, device = project.engine(alias), project.study.hardware.device
    checks = check_environment(engine, environment, arguments.model, device, served_settings(used))
    for each in checks:
        print(f"{engine.name} {environment.version} {each.check}: {each.verdict}: {each.saw}", flush=True)
    refuse_failed(engine, environment, str(project.lock(alias)), checks)
    count = sum(each.verdict == "ok" for each in checks)
    print(
        f"{engine.name} {environment.version}: {count} of {len(checks)} checks are ok, the others cannot be told here"
    )
    if arguments.output:
        CheckedEnvironment(tool=engine.name, version=environment.version, checks=checks).write(arguments.output)


if __name__ == "__main__":
    run(main)
