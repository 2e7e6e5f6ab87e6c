"""Reads a stage's plan and the records of its runs; makes its tables and its decision."""


checkpoint collect_runs:
    input:
        plan="results/studies/{study}/stages/{stage}/plan.json",
        runs=lambda wildcards: missing_runs(wildcards.study, wildcards.stage),
    output:
        mark=touch(MEASURED),


rule parse_stage:
    input:
        plan="results/studies/{study}/stages/{stage}/plan.json",
        runs=lambda wildcards: measured_runs(wildcards.study, wildcards.stage),
        study="config/studies/{study}.yaml",
        code=code(
            "parse_stage.py",
            "servelab/parse.py",
            "servelab/objective.py",
            "servelab/metrics/*.py",
            "servelab/timeline.py",
            "servelab/validity/*.py",
        ),
    output:
        table="results/studies/{study}/stages/{stage}/table.parquet",
        metrics="results/studies/{study}/stages/{stage}/metrics.parquet",
        rounds="results/studies/{study}/stages/{stage}/rounds.parquet",
        checks="results/studies/{study}/stages/{stage}/checks.parquet",
        timeline="results/studies/{study}/stages/{stage}/timeline.parquet",
    log:
        "results/logs/parse_stage/{study}-{stage}.log",
    conda:
        "../envs/workflow.yaml"
    threads: min(workflow.cores or 1, 8)
    shell:
        "python scripts/parse_stage.py --study {input.study} --plan {input.plan} --runs results/runs"
        " --processes {threads}"
        " --output-table {output.table} --output-metrics {output.metrics} --output-rounds {output.rounds}"
        " --output-checks {output.checks} --output-timeline {output.timeline} > {log} 2>&1"


rule decide_stage:
    input:
        unpack(pair_evidence),
        plan="results/{search}/stages/{stage}/plan.json",
        table="results/{search}/stages/{stage}/table.parquet",
        rounds="results/{search}/stages/{stage}/rounds.parquet",
        study=study_file,
        code=code(
            "decide_stage.py",
            "servelab/decide.py",
            "servelab/deciding_pair.py",
            "servelab/metrics/*.py",
            "servelab/objective.py",
            "servelab/parse.py",
            "servelab/search/*.py",
            "servelab/statistics.py",
            "servelab/validity/*.py",
        ),
    output:
        decision="results/{search}/stages/{stage}/decision.json",
    log:
        "results/logs/decide_stage/{search}-{stage}.log",
    conda:
        "../envs/workflow.yaml"
    params:
        study=study_path,
        pair=lambda wildcards, input: options(
            {name: input[name] for name in ("pair", "pair_status") if input.get(name)}
        ),
    shell:
        "python scripts/decide_stage.py --study {params.study} --plan {input.plan} --table {input.table}"
        " --rounds {input.rounds} {params.pair} --output {output.decision} > {log} 2>&1"
