"""Reads a study and the decisions of the stages before; makes each stage's plan: candidates, runs, specifications."""


checkpoint plan_stage:
    input:
        unpack(lambda wildcards: FILES.referred(f"studies/{wildcards.study}")),
        unpack(lambda wildcards: FILES.past_stages(wildcards.study, wildcards.stage)),
        study="config/studies/{study}.yaml",
        code=CODE,
    output:
        plan="results/studies/{study}/stages/{stage}/plan.json",
    log:
        "results/logs/plan_stage/{study}-{stage}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(f"studies/{wildcards.study}"),
    shell:
        call("plan_stage", "files")
