"""Converts a GGUF model to a Hugging Face folder; run it with the Python of an engine that serves such folders."""

from __future__ import annotations

from servelab.assets.model_files import convert_model
from servelab.core.cli import RuleJob, run_rule
from servelab.core.result_lock import make_if_missing


def main(rule: RuleJob) -> None:
    output = rule.output.model
    make_if_missing(output, lambda: convert_model(rule.input.model, output.parent))


if __name__ == "__main__":
    run_rule(main)
