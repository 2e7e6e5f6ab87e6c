"""Reduces the records and the telemetry of the proof's runs to the few rows that charts draw."""

from pathlib import Path

from servelab.core.rule import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table, write_table
from servelab.results.curves import condense


def main(rule: RuleJob) -> None:
    tables = condense(read_table(rule.input.table, schemas.STAGE_TABLE), Path("results/runs"))
    write_table(tables["distributions"], rule.output.distributions)
    write_table(tables["device_series"], rule.output.device_series)


if __name__ == "__main__":
    run_rule(main)
