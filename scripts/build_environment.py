"""Builds the environment of one engine or load client from its lock."""

from __future__ import annotations

from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ConfigError
from servelab.core.identity import lock_sha256
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import RUNTIMES, Tool
from servelab.measure.clients import CLIENTS


def main(rule: RuleJob) -> None:
    name, lock, output = rule.wildcards.tool, rule.input.lock, rule.output.environment
    tool: Tool = CLIENTS.get(name) if name in CLIENTS.names() else ENGINES.get(name)
    expected = f"{tool.name}-{lock_sha256(lock)[:12]}"
    if output.absolute().parent.name != expected:
        raise ConfigError(f"{output}: the folder of this lock's environment must be named {expected}")
    RUNTIMES.get(rule.params.get("runtime", "venv")).build(tool, lock, output.parent)


if __name__ == "__main__":
    run_rule(main)
