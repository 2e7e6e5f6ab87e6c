"""`study.json`: a study of either kind, with the titles of its workloads and an outline of its stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from servelab.core.files import write_json
from servelab.core.json_file import JsonFile, JsonPart
from servelab.core.run_spec import ProtocolSpec
from servelab.study.study import Hardware, Objective


class StageOutline(JsonPart):
    """A stage that decides, in the order of the search."""

    name: str = Field(description="Name of the stage.")
    title: str = Field(description="Its heading.")
    candidates: list[str] = Field(description="Names of all its candidates.")


class CurveOutline(JsonPart):
    """One workload at several loads."""

    of: str = Field(description="What its points differ in: `max_concurrency` or `request_rate`.")
    points: dict[str, float] = Field(description="Workload of each point → its value, the lowest first.")


class StudySummary(JsonFile):
    """`study.json`. A live and a recorded study have keys that the other one lacks."""

    study: str = Field(description="Name.")
    title: str = Field(description="Heading of the report.")
    model: dict[str, Any] = Field(description="Model and variants.")
    hardware: Hardware = Field(description="Accelerator, kind of device, accelerators of a node, price.")
    engines: dict[str, dict[str, Any]] = Field(description="Engines with their versions.")
    objective: Objective = Field(description="Metric, basis, margin, workload that decides.")
    search: dict[str, Any] | None = Field(None, description="Strategy and what ends the search; not if recorded.")
    protocol: ProtocolSpec | None = Field(None, description="How load is sent; not if recorded.")
    loads: dict[str, dict[str, Any]] = Field(
        {}, description="Workload → what its load has of its own, in place of `protocol` and SLOs; not if recorded."
    )
    curves: dict[str, CurveOutline] = Field({}, description="Curves by name; of a recorded study its sweeps.")
    client: str | None = Field(None, description="Load client; not if recorded.")
    baseline: dict[str, Any] | str = Field(description="What everything is compared with.")
    stages: list[StageOutline] = Field(description="Stages that decide, in the order of the search.")
    workloads: dict[str, str] = Field(description="Name → title.")
    source: str | None = Field(None, description="Where a recorded study was published.")
    note: str | None = Field(None, description="Remark on a recorded study.")

    def slos_of(self, workload: str) -> dict[str, float]:
        """Limits for goodput under a workload."""
        own: dict[str, float] | None = self.loads.get(workload, {}).get("slos")
        return self.objective.slos if own is None else own

    def write(self, path: Path) -> None:
        """Writes the keys that this study has."""
        write_json(path, self.model_dump(mode="json", exclude_unset=True))
