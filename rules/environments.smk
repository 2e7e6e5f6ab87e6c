"""Reads locks and models; makes results/envs, the mark that an environment can serve a model with what studies set, and
predicted speeds.

An environment is checked before its first measurement. One that is wrong stops its studies with a remedy: no candidate
is blamed for it. A complete run does not ask for this.
"""


rule build_environment:
    input:
        lock=lambda wildcards: ancient(
            str(SOURCES.environment(wildcards.tool, wildcards.lock_hash).lock)
        ),
    output:
        environment=update("results/envs/{tool}-{lock_hash}/environment.json"),
    log:
        "results/logs/build_environment/{tool}-{lock_hash}.log",
    retries: 1
    params:
        files=rule_files,
        runtime=lambda wildcards: SOURCES.environment(
            wildcards.tool, wildcards.lock_hash
        ).runtime,
    shell:
        call("environments.build_environment", "runtime", log=SHOWN)


rule check_environment:
    input:
        environment=ancient("results/envs/{tool}-{lock_hash}/environment.json"),
        model=ancient("results/models/{served_model}/model.json"),
    output:
        checked=update(
            "results/envs/{tool}-{lock_hash}/checked-{served_model}-{settings_id}.json"
        ),
    log:
        "results/logs/check_environment/{tool}-{lock_hash}-{served_model}-{settings_id}.log",
    params:
        files=rule_files,
        studies=lambda wildcards: " ".join(
            SOURCES.checked_for(wildcards.tool, wildcards.lock_hash)
        ),
    shell:
        call("environments.check_environment", "studies", log=SHOWN)


rule predict_study:
    input:
        unpack(FILES.timings),
        made_from=MADE_FROM_LIVE,
    output:
        predicted="results/studies/{study}/predicted.json",
    log:
        "results/logs/predict_study/{study}.log",
    params:
        files=rule_files,
    shell:
        call("environments.predict_study")
