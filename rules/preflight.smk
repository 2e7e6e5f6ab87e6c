"""Reads the studies of the configuration and what is here of their engines and models; makes a table, and holds no device.

Nothing depends on it: what a check says is an estimate or concerns one candidate, and a candidate that fails is a result.
"""

from servelab.preflight import preflight
from servelab.preflight.table import troubles


def say_troubles():
    """For the start of a workflow that has something to do: what is known at once, a line for each error and warning."""
    if "preflight" in workflow.dag_settings.targets:
        return
    for project in PROJECTS.values():
        for line in troubles(preflight(project, RESULTS, ask=False)):
            logger.warning(line)


rule preflight:
    log:
        "results/logs/preflight.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        studies=[f"config/studies/{study}.yaml" for study in STUDIES],
    shell:
        "python scripts/preflight.py --studies {params.studies} --results results 2> {log}"
