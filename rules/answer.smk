"""Reads the tables and decisions of all stages; makes a study's tables, its answer, and its history.

An answer is kept under the versions of the study's engines, so that an upgrade overwrites none.
"""


rule aggregate:
    input:
        unpack(FILES.first_pairs),
        plans=FILES.of_stages("plan.json"),
        tables=FILES.of_stages("table.parquet"),
        points=FILES.of_stages("points.parquet"),
        metrics=FILES.of_stages("metrics.parquet"),
        rounds=FILES.of_stages("rounds.parquet"),
        checks=FILES.of_stages("checks.parquet"),
        decisions=FILES.of_deciding_stages("decision.json"),
        made_from=MADE_FROM,
    output:
        study="results/{search}/study.json",
        curves="results/{search}/curves.parquet",
        metrics="results/{search}/metrics.parquet",
        checks="results/{search}/checks.parquet",
        improvements="results/{search}/improvements.parquet",
        search="results/{search}/search.parquet",
        recommended="results/{search}/recommended.json",
    log:
        "results/logs/aggregate/{search}.log",
    params:
        files=rule_files,
    shell:
        call("answer.aggregate")


rule keep_answer:
    input:
        recommended="results/studies/{study}/recommended.json",
        decisions=FILES.of_deciding_stages("decision.json"),
        table=FILES.of_last_stage("table.parquet"),
        made_from=MADE_FROM_LIVE,
    output:
        answer="results/studies/{study}/answers/{versions_id}.json",
    log:
        "results/logs/keep_answer/{study}-{versions_id}.log",
    params:
        files=rule_files,
    shell:
        call("answer.keep_answer")


rule build_history:
    input:
        plans=FILES.of_stages("plan.json"),
        # made again whenever a run is
        tables=FILES.of_stages("table.parquet"),
        answer=lambda wildcards: FILES.answer(wildcards.study),
        made_from=MADE_FROM_LIVE,
    output:
        history="results/studies/{study}/history.parquet",
        answers="results/studies/{study}/answers.parquet",
        device_series="results/studies/{study}/device_series.parquet",
    log:
        "results/logs/build_history/{study}.log",
    params:
        files=rule_files,
    shell:
        call("answer.build_history")
