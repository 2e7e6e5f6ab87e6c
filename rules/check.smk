"""Reads environments and models; makes the mark that an environment can serve a model with what studies set.

Runs before the first measurement of an environment. An environment that is wrong stops its studies with a remedy: no
candidate is blamed for it. A complete run does not ask for this.
"""


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
        call("check_environment", "files", "studies", log=SHOWN)
