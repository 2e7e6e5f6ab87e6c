"""Reads a stage's tables; makes its deciding pair, measured again A/B/B/A, where the study asks for that.

Like `measure`, `measure_pair` holds accelerators, and a pair's name is a hash of everything that can change it.
"""


checkpoint plan_pair:
    input:
        plan="results/studies/{study}/stages/{stage}/plan.json",
        table="results/studies/{study}/stages/{stage}/table.parquet",
        rounds="results/studies/{study}/stages/{stage}/rounds.parquet",
        study="config/studies/{study}.yaml",
        code=code(
            "plan_pair.py",
            "servelab/decide.py",
            "servelab/deciding_pair.py",
            "servelab/objective.py",
            "servelab/search/*.py",
            "servelab/statistics.py",
        ),
    output:
        pair="results/studies/{study}/stages/{stage}/pair.json",
    log:
        "results/logs/plan_pair/{study}-{stage}.log",
    conda:
        "../envs/workflow.yaml"
    shell:
        "python scripts/plan_pair.py --study {input.study} --plan {input.plan} --table {input.table}"
        " --rounds {input.rounds} --output {output.pair} > {log} 2>&1"


rule measure_pair:
    input:
        environments=lambda wildcards: ancient(
            files_of_sides(wildcards.pair_id, "environment")
        ),
        client_environment=lambda wildcards: ancient(
            files_of_sides(wildcards.pair_id, "client_environment")[:1]
        ),
        models=lambda wildcards: ancient(files_of_sides(wildcards.pair_id, "model")),
        requests=lambda wildcards: ancient(
            files_of_sides(wildcards.pair_id, "requests")[:1]
        ),
    output:
        status=update("results/pairs/{pair_id}/status.json"),
    log:
        "results/logs/measure_pair/{pair_id}.log",
    # a job on a cluster fails at once: the workflow tries again, with a job of its own
    retries: 2 if workflow.is_main_process else 0
    conda:
        "../envs/workflow.yaml"
    threads:
        lambda wildcards: max(
            run_threads(spec.hardware) for spec in sides_of(wildcards.pair_id)
        )
    resources:
        **asked_of_cluster(lambda *job: pair_request(*job)),
        accelerators=lambda wildcards: max(
            spec.hardware.count for spec in sides_of(wildcards.pair_id)
        ),
    params:
        pair=lambda wildcards: spec_json(pair_of(wildcards.pair_id)),
    shell:
        "python scripts/measure_pair.py --pair {params.pair:q} --environment {input.environments}"
        " --client-environment {input.client_environment} --model {input.models} --requests {input.requests} --output results/pairs/{wildcards.pair_id}"
        " 2>&1 | tee -i {log}"
