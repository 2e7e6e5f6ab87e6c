"""Writes a GGUF model in another of llama.cpp's number formats."""

from servelab.assets.model_files import quantize_model
from servelab.core.cli import RuleJob, run_rule
from servelab.core.result_lock import make_if_missing


def main(rule: RuleJob) -> None:
    output = rule.output.model
    make_if_missing(output, lambda: quantize_model(rule.input.model, rule.wildcards.quantization, output.parent))


if __name__ == "__main__":
    run_rule(main)
