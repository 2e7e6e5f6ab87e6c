"""Checks without a device that an engine's environment can serve a model with what studies set; exits 2 if not."""

from __future__ import annotations

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ConfigError
from servelab.engines.runtimes import read_environment
from servelab.measure.environment_gate import CheckedEnvironment, check_environment, refuse_failed
from servelab.search.project import load_project
from servelab.study.spec_builder import served_settings


def main(rule: RuleJob) -> None:
    environment = read_environment(rule.input.environment)
    projects = [load_project(Path(file), Path()) for file in rule.params.studies.split()]
    used = [
        (project, alias)
        for project in projects
        for alias in project.study.engines
        if project.environment_sha256(alias) == environment.lock_sha256
    ]
    if not used:
        raise ConfigError(f"{rule.input.environment}: no engine of these studies has the lock it was built from")
    project, alias = used[0]
    engine, device = project.engine(alias), project.study.hardware.device
    checks = check_environment(engine, environment, rule.input.model, device, served_settings(used))
    for each in checks:
        print(f"{engine.name} {environment.version} {each.check}: {each.verdict}: {each.saw}", flush=True)
    refuse_failed(engine, environment, str(project.lock(alias)), checks)
    count = sum(each.verdict == "ok" for each in checks)
    print(
        f"{engine.name} {environment.version}: {count} of {len(checks)} checks are ok, the others cannot be told here"
    )
    CheckedEnvironment(tool=engine.name, version=environment.version, checks=checks).write(rule.output.checked)


if __name__ == "__main__":
    run_rule(main)
