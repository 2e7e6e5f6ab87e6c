"""Reads the sources named in studies; makes results/models: downloaded, converted, quantised.

A folder's name says what is in it, so it is made once, and no time is compared. `update` keeps Snakemake from removing
what another workflow has made, and may be using, before the job that would make it again.
"""


rule download_model:
    output:
        model=update("results/models/{model_key}/model.json"),
    log:
        "results/logs/download_model/{model_key}.log",
    retries: 1
    params:
        files=rule_files,
        source=lambda wildcards: spec_json(SOURCES.models[wildcards.model_key]),
    shell:
        call("models.download_model", "source", log=SHOWN)


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
        call(
            "models.convert_model",
            python='PYTHONPATH="$SERVELAB_SCRIPTS" $(dirname {input.environment})/venv/bin/python',
        )


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
        call("models.quantize_model")
