"""Runs of a stage for Snakemake: jobs for those that are missing, files for those that are complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from servelab.measure.sealed_runs import SealedRuns
from servelab.study.project import LIVE, is_live, name_of
from servelab.workflow.plan_index import Job, Plans
from servelab.workflow.studies import Studies
from servelab.workflow.study_files import stage_file

MEASURED = ".snakemake/measured/{study}/{stage}"
"""Mark of one workflow that all runs of a stage are complete; no job reads it."""


class StageRuns:
    """Runs of the stages of live studies.

    `wait_for_plan(study, stage)` asks Snakemake for a plan, and raises `unplanned` where it has to be made first.
    `is_main_process` is False within a job on another node.
    """

    def __init__(
        self,
        studies: Studies,
        plans: Plans,
        sealed: SealedRuns,
        wait_for_plan: Callable[[str, str], object],
        unplanned: type[Exception],
        *,
        is_main_process: bool,
    ) -> None:
        self._studies, self._plans, self._is_main_process = studies, plans, is_main_process
        self._sealed = sealed
        self._wait_for_plan, self._unplanned = wait_for_plan, unplanned

    def missing(self, study: str, stage: str) -> list[str]:
        """A file for each measuring job of a stage, once its plan is known.

        It is of the last run of the job that is missing: when that is there, all are. Nothing asks for complete runs.
        """
        plan = self._plan(study, stage)
        runs = (run for job in self._plans.jobs(plan) if (run := self._last_missing(job))) if plan else ()
        return [f"results/runs/{run_id}/manifest.json" for run_id in dict.fromkeys(runs)]

    def to_wait_for(self, study: str, stage: str) -> list[str]:
        """Files that are made once no run of a stage is missing; none where none is missing now."""
        missing = self.missing(study, stage)
        # with one of them, as there may be a mark of an earlier time
        return [MEASURED.format(study=study, stage=stage), missing[0]] if missing else []

    def measured(self, study: str, stage: str) -> list[str]:
        """Status files of a stage's runs: files that no rule makes, so that they cost no job.

        Where some are missing, what to wait for: then Snakemake asks again.
        """
        # a job on another node has them all, and may see them a while later
        waiting = self.to_wait_for(study, stage) if self._is_main_process else []
        plan = None if waiting else self._plan(study, stage)
        here = (run_id for run_id in (self._plans.ids(plan) if plan else []) if self._sealed.is_here(run_id))
        return waiting or [_status(run_id) for run_id in here]

    def of_study(self, search: str) -> list[str]:
        """Status files of all runs of a study, each once; a recorded study has none."""
        stages = self._studies.planned_stages(search) if is_live(search) else []
        return list(dict.fromkeys(path for stage in stages for path in self.measured(name_of(search), stage)))

    def all_to_wait_for(self) -> list[str]:
        """The same for all stages that have a plan."""
        awaited = []
        for study in self._studies.live:
            for stage in self._studies.planned_stages(f"{LIVE}/{study}"):
                try:
                    awaited += self.to_wait_for(study, stage)
                except self._unplanned:
                    continue  # an older plan: it is made again, and then Snakemake asks again
        return awaited

    def _plan(self, study: str, stage: str) -> Path | None:
        """A stage's plan, once it is as it should be; None before there is one, which the same rule waits for."""
        plan = Path(stage_file(f"studies/{study}", stage, "plan.json"))
        if not plan.exists():
            return None
        self._wait_for_plan(study, stage)
        return plan

    def _last_missing(self, job: Job) -> str | None:
        """The last run of a job that is missing or broken; None if none is."""
        complete = self._sealed.is_complete
        return next((run for visit in reversed(job) for run in reversed(visit) if not complete(run)), None)


def _status(run_id: str) -> str:
    """A file of each run that was measured."""
    return f"results/runs/{run_id}/status.json"
