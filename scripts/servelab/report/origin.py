"""Where a report's figures come from: runs that were measured, or logs that were recorded."""

from __future__ import annotations

from typing import Protocol

from servelab.report.inputs import Study
from servelab.report.table import Table


class Origin(Protocol):
    """The evidence behind a study's figures, and how it is shown. Addresses are relative to the report."""

    @property
    def kind(self) -> str:
        """What the runs are: of `beside.KINDS`."""
        ...

    @property
    def remark(self) -> str:
        """What holds the raw figures."""
        ...

    @property
    def target(self) -> str:
        """What to give to Snakemake to make the report again."""
        ...

    def href(self, run_id: str) -> str:
        """Address of what a run's figures were computed from; empty where there is nothing."""
        ...

    def failure_href(self, run_id: str) -> str:
        """Address of the log that tells of a failure; empty where there is none."""
        ...

    def commit(self, run_id: str) -> str | None:
        """The commit a run was measured at; None where nobody knows."""
        ...

    def image(self, run_id: str) -> str | None:
        """The container image, by digest, that a run was served in; None where no container is known of."""
        ...

    def provenance(self, study: Study, workload_of: dict[str, str]) -> dict[str, Table]:
        """Tables by heading: software, model, workloads, machines; `workload_of` names the workload of each run."""
        ...
