"""Fetches one model and describes it in model.json."""

from __future__ import annotations

from servelab.assets.model_files import fetch_model, parse_source
from servelab.core.cli import RuleJob, run_rule
from servelab.core.result_lock import make_if_missing


def main(rule: RuleJob) -> None:
    output = rule.output.model
    make_if_missing(output, lambda: fetch_model(parse_source(rule.params.source), output.parent))


if __name__ == "__main__":
    run_rule(main)
