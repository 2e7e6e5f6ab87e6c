"""Reads a study and the decisions of the stages before; makes each stage's plan: candidates, runs, specifications."""


checkpoint plan_stage:
    input:
        unpack(lambda wildcards: FILES.referred(f"studies/{wildcards.study}")),
        unpack(lambda wildcards: FILES.past_stages(wildcards.study, wildcards.stage)),
        study="config/studies/{study}.yaml",
        code=code_of("plan_stage"),
    output:
        plan="results/studies/{study}/stages/{stage}/plan.json",
    log:
        "results/logs/plan_stage/{study}-{stage}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        content=lambda wildcards: FILES.sha256(f"studies/{wildcards.study}"),
        past=lambda wildcards: options(
            FILES.past_stages(wildcards.study, wildcards.stage)
        ),
    shell:
        'python "$SERVELAB_SCRIPTS"/plan_stage.py --study {input.study} --stage {wildcards.stage} {params.past}'
        " --output {output.plan} > {log} 2>&1"
