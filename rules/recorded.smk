"""Reads the logs of recorded studies; makes the tables that live stages have, and the audit of what was published.

Decisions, percentages, recommendation, charts and report then come from the rules of live studies, whose `search` is
`recorded/<study>` instead of `studies/<study>`: the folder below results/.
"""


rule parse_recorded:
    input:
        unpack(FILES.previous_stage),
        made_from=MADE_FROM_RECORDED,
    output:
        **stage_tables("recorded/{study}"),
        plan="results/recorded/{study}/stages/{stage}/plan.json",
    log:
        "results/logs/parse_recorded/{study}-{stage}.log",
    params:
        files=rule_files,
    shell:
        call("recorded.parse_recorded")


rule audit_claims:
    input:
        plans=FILES.of_deciding_stages("plan.json", RECORDED),
        decisions=FILES.of_deciding_stages("decision.json", RECORDED),
        recommended="results/recorded/{study}/recommended.json",
        made_from=MADE_FROM_RECORDED,
    output:
        claims="results/recorded/{study}/claims.parquet",
        logs=directory("results/recorded/{study}/logs"),
    log:
        "results/logs/audit_claims/{study}.log",
    params:
        files=rule_files,
    shell:
        call("recorded.audit_claims")
