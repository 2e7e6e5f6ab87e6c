"""Reads a study's plans, its answer and all measured runs; makes its kept answers, history.parquet and answers.parquet.

An answer is named by the versions of the study's engines, so that an upgrade overwrites none.
"""


rule keep_answer:
    input:
        unpack(lambda wildcards: FILES.referred(f"studies/{wildcards.study}")),
        recommended="results/studies/{study}/recommended.json",
        decision=lambda wildcards: FILES.of_deciding_stages(
            f"studies/{wildcards.study}", "decision.json"
        )[-1:],
        table=lambda wildcards: FILES.of_last_stage(
            f"studies/{wildcards.study}", "table.parquet"
        ),
        study="config/studies/{study}.yaml",
        code=code_of("keep_answer"),
    output:
        answer="results/studies/{study}/answers/{versions_id}.json",
    log:
        "results/logs/keep_answer/{study}-{versions_id}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        content=lambda wildcards: FILES.sha256(f"studies/{wildcards.study}"),
    shell:
        'python "$SERVELAB_SCRIPTS"/keep_answer.py --study {input.study} --recommended {input.recommended}'
        " --decision {input.decision} --table {input.table} --runs results/runs --output {output.answer} > {log} 2>&1"


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
        code=code_of("build_history"),
    output:
        history="results/studies/{study}/history.parquet",
        answers="results/studies/{study}/answers.parquet",
    log:
        "results/logs/build_history/{study}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        content=lambda wildcards: FILES.sha256(f"studies/{wildcards.study}"),
        answers=lambda wildcards: f"results/studies/{wildcards.study}/answers",
        imported="" if USE_IMPORTED else "--without-imported",
    shell:
        'python "$SERVELAB_SCRIPTS"/build_history.py --study {input.study} --plans {input.plans} --answers {params.answers}'
        " --runs results/runs --output-history {output.history} --output-answers {output.answers} {params.imported}"
        " > {log} 2>&1"
