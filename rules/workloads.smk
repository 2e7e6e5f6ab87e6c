"""Reads datasets and tokenizers; makes results/datasets and results/workloads: the exact requests, once, for every engine."""


# a target: a machine with a network makes all that is to be measured on one without
rule fetch:
    input:
        lambda wildcards: SOURCES.missing(RESULTS),


rule download_dataset:
    output:
        dataset=update("results/datasets/{dataset}-{content}/dataset.json"),
    log:
        "results/logs/download_dataset/{dataset}-{content}.log",
    retries: 1
    params:
        files=rule_files,
    shell:
        call("workloads.download_dataset", log=SHOWN)


rule prepare_workload:
    input:
        model=lambda wildcards: ancient(SOURCES.tokenizer(wildcards.workload_id)),
        dataset=lambda wildcards: ancient(SOURCES.datasets(wildcards.workload_id)),
    output:
        requests=update("results/workloads/{workload_id}/requests.parquet"),
    log:
        "results/logs/prepare_workload/{workload_id}.log",
    params:
        files=rule_files,
        spec=lambda wildcards: spec_json(SOURCES.workloads[wildcards.workload_id][0]),
    shell:
        call("workloads.prepare_workload", "spec", log=SHOWN)
