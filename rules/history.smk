"""Reads a study's plans, its answer and all measured runs; makes its kept answers, history.parquet and answers.parquet.

An answer is named by the versions of the study's engines, so that an upgrade overwrites none.
"""


rule keep_answer:
    input:
        unpack(lambda wildcards: FILES.referred(f"studies/{wildcards.study}")),
        recommended="results/studies/{study}/recommended.json",
        decision=lambda wildcards: FILES.of_deciding_stages(
            f"studies/{wildcards.study}", "decision.json"
        )[-1],
        table=lambda wildcards: FILES.of_last_stage(
            f"studies/{wildcards.study}", "table.parquet"
        ),
        study="config/studies/{study}.yaml",
        code=CODE,
    output:
        answer="results/studies/{study}/answers/{versions_id}.json",
    log:
        "results/logs/keep_answer/{study}-{versions_id}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(f"studies/{wildcards.study}"),
    shell:
        call("keep_answer", "files")


rule build_history:
    input:
        unpack(lambda wildcards: FILES.referred(f"studies/{wildcards.study}")),
        plans=lambda wildcards: FILES.of_stages(
            f"studies/{wildcards.study}", "plan.json"
        ),
        # not read, but made again whenever a run is
        tables=lambda wildcards: FILES.of_stages(
            f"studies/{wildcards.study}", "table.parquet"
        ),
        answer=lambda wildcards: FILES.answer(wildcards.study),
        study="config/studies/{study}.yaml",
        code=CODE,
    output:
        history="results/studies/{study}/history.parquet",
        answers="results/studies/{study}/answers.parquet",
    log:
        "results/logs/build_history/{study}.log",
    params:
        files=rule_files,
        content=lambda wildcards: FILES.sha256(f"studies/{wildcards.study}"),
        use_imported=CONFIG.use_imported_runs,
    shell:
        call("build_history", "files", "use_imported")
