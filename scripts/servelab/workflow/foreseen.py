"""Plans that are certain before their rule has made them: a dry run lists their jobs, as the forecast counts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from servelab.search.course import Step
from servelab.study.plan import Plan
from servelab.workflow.plan_index import Plans
from servelab.workflow.studies import LIVE
from servelab.workflow.study_files import stage_file


class ForeseenPlans:
    """The plans of all stages whose earlier stages are decided, by study and stage.

    Without them, Snakemake sees no job behind a plan that is to be made again, such as after a change of the study.
    """

    def __init__(self, courses: Mapping[str, Iterable[Step]], plans: Plans) -> None:
        """`courses` are the steps of each live study."""
        self._plans = plans
        self._certain: dict[tuple[str, str], Plan] = {
            (study, step.plan.stage): step.plan for study, steps in courses.items() for step in steps if step.is_known
        }

    def path(self, study: str, stage: str, *, is_dry_run: bool) -> Path | None:
        """Where a stage's plan is taken to be; None if it is not certain, or if the plan is to be made for real."""
        if not is_dry_run:
            self._certain.clear()  # it may hold thousands of runs
        if (plan := self._certain.get((study, stage))) is None:
            return None
        path = Path(stage_file(f"{LIVE}/{study}", stage, "plan.json"))
        self._plans.foresee(path, plan)
        return path
