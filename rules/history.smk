"""Reads a study's plans, its answer and all measured runs; makes its kept answers, history.parquet and answers.parquet.

An answer is named by the versions of the study's engines, so that an upgrade overwrites none.
"""


rule keep_answer:
    input:
        recommended="results/studies/{study}/recommended.json",
        decision=lambda wildcards: stage_files(
            f"studies/{wildcards.study}",
            "decision.json",
            search_stages(f"studies/{wildcards.study}")[-1:],
        ),
        table=f"results/studies/{{study}}/stages/{COMPARISON}/table.parquet",
        study="config/studies/{study}.yaml",
        locks=study_locks,
        code=code("keep_answer.py", "servelab/answers.py"),
    output:
        answer="results/studies/{study}/answers/{versions_id}.json",
    log:
        "results/logs/keep_answer/{study}-{versions_id}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        "python scripts/keep_answer.py --study {input.study} --recommended {input.recommended}"
        " --decision {input.decision} --table {input.table} --runs results/runs --output {output.answer} > {log} 2>&1"


rule build_history:
    input:
        plans=lambda wildcards: stage_files(
            f"studies/{wildcards.study}",
            "plan.json",
            all_stages(f"studies/{wildcards.study}"),
        ),
        # not read, but made anew whenever a run is
        tables=lambda wildcards: stage_files(
            f"studies/{wildcards.study}",
            "table.parquet",
            all_stages(f"studies/{wildcards.study}"),
        ),
        answer=lambda wildcards: answer_file(wildcards.study),
        study="config/studies/{study}.yaml",
        locks=study_locks,
        code=code(
            "build_history.py",
            "servelab/answers.py",
            "servelab/compare/verdict.py",
            "servelab/decide.py",
            "servelab/history.py",
            "servelab/metrics/*.py",
            "servelab/objective.py",
            "servelab/parse.py",
            "servelab/past_runs.py",
            "servelab/statistics.py",
            "servelab/validity/*.py",
        ),
    output:
        history="results/studies/{study}/history.parquet",
        answers="results/studies/{study}/answers.parquet",
    log:
        "results/logs/build_history/{study}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        answers=lambda wildcards: f"results/studies/{wildcards.study}/answers",
    shell:
        "python scripts/build_history.py --study {input.study} --plans {input.plans} --answers {params.answers}"
        " --runs results/runs --output-history {output.history} --output-answers {output.answers} > {log} 2>&1"
