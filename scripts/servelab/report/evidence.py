"""Where a report's figures come from: runs that were measured, or logs that were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from servelab.report.cells import Table
from servelab.study.summary import StudySummary


class Origin(Protocol):
    """The evidence behind a study's figures, and how to show it. Links are relative to the report."""

    @property
    def kind(self) -> str:
        """Kind of the runs, one of `measured_and_recorded.KINDS`."""
        ...

    @property
    def remark(self) -> str:
        """A sentence that names where the raw figures are."""
        ...

    def imported(self, run_ids: Sequence[str]) -> str:
        """A sentence that says which of these runs were restored from an archive; empty if none was."""
        ...

    def visited(self, run_ids: Sequence[str]) -> str:
        """A sentence on the servers that already ran, and what cannot be known of them; empty if there was none."""
        ...

    @property
    def target(self) -> str:
        """Arguments for Snakemake that make the report again."""
        ...

    def href(self, run_id: str) -> str:
        """Link to what a run's figures were computed from; empty if there is nothing."""
        ...

    def failure_href(self, run_id: str) -> str:
        """Link to the log of a failure; empty if there is none."""
        ...

    def commit(self, run_id: str) -> str | None:
        """The commit a run was measured at; None if unknown."""
        ...

    def model_has_name(self, run_id: str) -> bool:
        """Whether an engine finds the served weights by the name in the command: not if they were made here."""
        ...

    def image(self, run_id: str) -> str | None:
        """The container image, by digest, that served a run; None if no container is known."""
        ...

    def provenance(self, study: StudySummary, workload_of: dict[str, str]) -> dict[str, Table]:
        """Tables by heading: software, model, workloads, machines; `workload_of` names the workload of each run."""
        ...
