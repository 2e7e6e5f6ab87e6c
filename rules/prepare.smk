"""Reads datasets and models; makes converted models and results/workloads: the exact requests, once, for every engine."""

CONVERTER = (
    'PYTHONPATH="$SERVELAB_SCRIPTS" $(dirname {input.environment})/venv/bin/python'
)


rule convert_model:
    input:
        model=ancient("results/models/{model_key}/model.json"),
        environment=lambda wildcards: ancient(SOURCES.converter(wildcards.format)),
    output:
        model=update("results/models/{model_key}-{format}/model.json"),
    log:
        "results/logs/convert_model/{model_key}-{format}.log",
    params:
        files=rule_files,
    shell:
        call("convert_model", "files", python=CONVERTER)


rule quantize_model:
    input:
        model=ancient("results/models/{model_key}/model.json"),
    output:
        model=update("results/models/{model_key}-{quantization}/model.json"),
    log:
        "results/logs/quantize_model/{model_key}-{quantization}.log",
    params:
        files=rule_files,
    shell:
        call("quantize_model", "files")


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
        spec=lambda wildcards: spec_json(SOURCES.workload(wildcards.workload_id)),
    shell:
        call("prepare_workload", "files", "spec")
