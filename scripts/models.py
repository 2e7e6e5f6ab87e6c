"""Models: downloaded, converted with the Python of an engine that serves the other format, quantised."""

from __future__ import annotations

from servelab.assets import model_files
from servelab.core.cli import RuleJob, run_rule
from servelab.core.result_lock import make_if_missing


def download_model(rule: RuleJob) -> None:
    output = rule.output.model
    source = model_files.parse_source(rule.params.source)
    make_if_missing(output, lambda: model_files.fetch_model(source, output.parent))


def convert_model(rule: RuleJob) -> None:
    output = rule.output.model
    make_if_missing(output, lambda: model_files.convert_model(rule.input.model, output.parent))


def quantize_model(rule: RuleJob) -> None:
    output, quantization = rule.output.model, rule.wildcards.quantization
    make_if_missing(output, lambda: model_files.quantize_model(rule.input.model, quantization, output.parent))


if __name__ == "__main__":
    run_rule(globals())
