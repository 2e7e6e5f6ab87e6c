"""Environments of engines, load clients and predictions: built from their locks, checked without a device, asked."""

from __future__ import annotations

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ConfigError
from servelab.core.identity import lock_sha256
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import RUNTIMES, Tool, read_environment
from servelab.measure.clients import CLIENTS
from servelab.measure.environment_gate import CheckedEnvironment, refuse_failed
from servelab.measure.environment_gate import check_environment as checks_of
from servelab.search.predict import TOOLS
from servelab.search.predict_study import predictions_of
from servelab.search.project import load_project
from servelab.study.spec_builder import served_settings


def build_environment(rule: RuleJob) -> None:
    name, lock, output = rule.wildcards.tool, rule.input.lock, rule.output.environment
    tool: Tool = CLIENTS.get(name) if name in CLIENTS.names() else TOOLS.get(name) or ENGINES.get(name)
    expected = f"{tool.name}-{lock_sha256(lock)[:12]}"
    if output.absolute().parent.name != expected:
        raise ConfigError(f"{output}: the folder of this lock's environment must be named {expected}")
    RUNTIMES.get(rule.params.get("runtime", "venv")).build(tool, lock, output.parent)


def check_environment(rule: RuleJob) -> None:
    """Ends with 2 if the environment cannot serve the model with what the studies set."""
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
    name = f"{engine.name} {environment.version}"
    checks = checks_of(engine, environment, rule.input.model, device, served_settings(used))
    for each in checks:
        print(f"{name} {each.check}: {each.verdict}: {each.saw}", flush=True)
    refuse_failed(engine, environment, str(project.lock(alias)), checks)
    count = sum(each.verdict == "ok" for each in checks)
    print(f"{name}: {count} of {len(checks)} checks are ok, the others cannot be made here")
    CheckedEnvironment(tool=engine.name, version=environment.version, checks=checks).write(rule.output.checked)


def predict_study(rule: RuleJob) -> None:
    project = load_project(Path(f"config/studies/{rule.wildcards.study}.yaml"), Path())
    found = predictions_of(project, read_environment(rule.input.environment).python)
    found.write(rule.output.predicted)
    print(f"predicted {len(found.values)} combinations by {found.source}")
    for each in found.refused:
        print(f"not used: {each}")


if __name__ == "__main__":
    run_rule(globals())
