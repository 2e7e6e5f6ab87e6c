"""Writes the index page over all studies in a folder of results, live and recorded, finished or not."""

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.report.index_page import index_page
from servelab.report.page import write_page


def main(rule: RuleJob) -> None:
    page = index_page(Path("results"), rule.params.expected.split())
    write_page(page, rule.output.html, rule.output.markdown)


if __name__ == "__main__":
    run_rule(main)
