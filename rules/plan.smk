"""Reads a study and the decisions of the stages before; makes each stage's plan: candidates, runs, specifications."""


checkpoint plan_stage:
    input:
        unpack(
            lambda wildcards: past_stages(
                f"studies/{wildcards.study}", wildcards.stage
            )
        ),
        study="config/studies/{study}.yaml",
        workloads="config/workloads.yaml",
        datasets="config/datasets.yaml",
        locks=study_locks,
        code=code(
            "plan_stage.py",
            "servelab/engines/*.py",
            # whatever else is in a run's identity, the versions of clients, generators and converters among it
            "servelab/clients/*.py",
            "servelab/workloads/*.py",
            "servelab/conversion.py",
            "servelab/identity.py",
            "servelab/plan.py",
            "servelab/project.py",
            "servelab/quantization.py",
            "servelab/run_specs.py",
            "servelab/search/*.py",
            "servelab/spec.py",
            "servelab/study.py",
        ),
    output:
        plan="results/studies/{study}/stages/{stage}/plan.json",
    log:
        "results/logs/plan_stage/{study}-{stage}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        past=lambda wildcards: options(
            past_stages(f"studies/{wildcards.study}", wildcards.stage)
        ),
    shell:
        "python scripts/plan_stage.py --study {input.study} --stage {wildcards.stage} {params.past}"
        " --output {output.plan} > {log} 2>&1"
