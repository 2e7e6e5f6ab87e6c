"""Writes the name of a finished study's archive, which has the day on which its last run ended."""

from pathlib import Path

from servelab.archive.contents import archive_name, date_of, read_source
from servelab.core.cli import RuleJob, run_rule
from servelab.core.files import write_json


def main(rule: RuleJob) -> None:
    search = rule.wildcards.search
    date = date_of(Path(), Path("results"), search, read_source(Path()))
    write_json(rule.output.name, {"archive": archive_name(search, date)})


if __name__ == "__main__":
    run_rule(main)
