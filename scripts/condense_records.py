"""Reduces the telemetry of the proof's runs to the few rows that charts draw."""

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table, write_table
from servelab.results.curves import device_series


def main(rule: RuleJob) -> None:
    table = read_table(rule.input.table, schemas.STAGE_TABLE)
    write_table(device_series(table, Path("results/runs")), rule.output.device_series)


if __name__ == "__main__":
    run_rule(main)
