"""Prints the measuring jobs of the studies of a checkout, planned without measuring: `planned_jobs.py STUDY…`.

Every stage is planned from the baseline. One JSON object a job: its place (study, stage, candidate, start), its engine
and the specification of each of its runs, by id. Run in the checkout, with its scripts on PYTHONPATH.
"""

import json
import sys
from pathlib import Path

from servelab.search.planning import plan_stage
from servelab.search.project import load_project
from servelab.study.configuration import baseline

for name in sys.argv[1:]:
    project = load_project(Path(f"config/studies/{name}.yaml"), Path())
    for stage in project.study.stages:
        plan = plan_stage(project, stage.name, baseline(project.study))
        of_run = {run.run_id: each for each in plan.candidates for run in each.runs}
        for visits in plan.jobs():
            runs = [run for visit in visits for run in visit]
            candidate = of_run[runs[0].run_id]
            job = {
                "place": [name, stage.name, candidate.candidate, runs[0].start],
                "engine": candidate.configuration.engine,
                "runs": {run.run_id: run.spec.model_dump(mode="json") for run in runs},
            }
            print(json.dumps(job))
