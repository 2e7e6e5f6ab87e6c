"""Reads a study and the decision of the stage before; makes the plan of each stage: candidates, runs, specifications."""


def previous_stage(wildcards):
    """Plan and decision of the stage before: this stage starts from its winner."""
    previous = PROJECTS[wildcards.study].previous_stage(wildcards.stage)
    if previous is None:
        return {}
    folder = stage_folder(wildcards.study, previous)
    return {
        "previous_plan": f"{folder}/plan.json",
        "previous_decision": f"{folder}/decision.json",
    }


def study_locks(wildcards):
    """Locks of a study's engines: their content is part of every run's identity."""
    project = PROJECTS[wildcards.study]
    return sorted({str(project.lock(alias)) for alias in project.study.engines})


checkpoint plan_stage:
    input:
        unpack(previous_stage),
        study="config/studies/{study}.yaml",
        workloads="config/workloads.yaml",
        datasets="config/datasets.yaml",
        locks=study_locks,
        code=code("plan_stage.py", "servelab/plan.py", "servelab/engines/*.py"),
    output:
        plan="results/studies/{study}/stages/{stage}/plan.json",
    log:
        "results/logs/plan_stage/{study}-{stage}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        previous=lambda wildcards: " ".join(
            f"--{name.replace('_', '-')} {path}"
            for name, path in previous_stage(wildcards).items()
        ),
    shell:
        "python scripts/plan_stage.py --study {input.study} --stage {wildcards.stage} {params.previous}"
        " --output {output.plan} > {log} 2>&1"
