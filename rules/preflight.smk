"""Reads the studies of the configuration and what is here of their engines and models; makes a table, and holds no device.

Nothing depends on it: what a check says is an estimate or concerns one candidate, and a candidate that fails is a result.
"""


rule preflight:
    log:
        "results/logs/preflight.log",
    localrule: True
    params:
        studies=" ".join(f"config/studies/{study}.yaml" for study in STUDIES.live),
    shell:
        call("preflight", "studies", log="2> {log}")
