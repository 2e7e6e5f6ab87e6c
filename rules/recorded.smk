"""Reads the logs of recorded studies; makes the tables that live stages have, and the audit of what was published.

Decisions, percentages, recommendation, charts and report then come from the rules of live studies, whose `search` is
`recorded/<study>` instead of `studies/<study>`: the folder below results/.
"""


rule parse_recorded:
    input:
        unpack(
            lambda wildcards: FILES.previous_stage(
                f"recorded/{wildcards.study}", wildcards.stage
            )
        ),
        study="config/recorded/{study}/study.yaml",
        logs=lambda wildcards: FILES.logs(wildcards.study),
        code=CODE,
    output:
        **stage_tables("recorded/{study}"),
        plan="results/recorded/{study}/stages/{stage}/plan.json",
    log:
        "results/logs/parse_recorded/{study}-{stage}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(f"recorded/{wildcards.study}"),
    shell:
        call("parse_recorded", "files")


rule audit_claims:
    input:
        plans=lambda wildcards: FILES.of_deciding_stages(
            f"recorded/{wildcards.study}", "plan.json"
        ),
        decisions=lambda wildcards: FILES.of_deciding_stages(
            f"recorded/{wildcards.study}", "decision.json"
        ),
        recommended="results/recorded/{study}/recommended.json",
        study="config/recorded/{study}/study.yaml",
        logs=lambda wildcards: FILES.logs(wildcards.study),
        siblings=lambda wildcards: FILES.siblings(wildcards.study),
        code=CODE,
    output:
        claims="results/recorded/{study}/claims.parquet",
    log:
        "results/logs/audit_claims/{study}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(f"recorded/{wildcards.study}"),
    shell:
        call("audit_claims", "files")


rule copy_logs:
    input:
        logs=lambda wildcards: FILES.logs(wildcards.study),
    output:
        logs=directory("results/recorded/{study}/logs"),
    log:
        "results/logs/copy_logs/{study}.log",
    shell:
        "(trap 'rm -rf {output.logs}' EXIT;"
        ' mkdir -p {output.logs} && for each in {input.logs:q}; do cp "$each" {output.logs}/ || exit 1; done'
        " && trap - EXIT) > {log} 2>&1"
