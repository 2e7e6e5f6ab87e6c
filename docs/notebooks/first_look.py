# ruff: noqa: D100, S608
# ruff: noqa: D100, S608
# %% [markdown]
# # A first look at a study's results
#
# A notebook as a script: editors that know `# %%` cells run it cell by cell, `python docs/notebooks/first_look.py` runs
# all of it from the project's folder, and `jupytext --to ipynb` makes a Jupyter notebook of it. docs/output.md has
# every column and its unit.

# %%
from pathlib import Path

import altair as alt
import duckdb
import pandas as pd

STUDY = "cpu-smollm2"
results = Path("results")
study = results / "studies" / STUDY

# %% [markdown]
# What was tried, stage by stage, with the objective of each candidate and what the checks made of its run.

# %%
stages = pd.concat(pd.read_parquet(file) for file in sorted(study.glob("stages/*/table.parquet")))
tried = stages[["stage", "position", "candidate", "workload", "outcome", "validity", "objective_value"]]
print(tried.sort_values(["stage", "position"]).to_string(index=False))

# %% [markdown]
# Every request of every run of the study, with its run's candidate: the raw material of all figures.

# %%
requests = duckdb.sql(f"""
    SELECT t.candidate, t.workload, r.round,
        1000 * (r.first_token_s - r.sent_s) AS ttft_ms,
        1000 * (r.last_token_s - r.sent_s) AS e2el_ms,
    FROM read_parquet('{results}/runs/*/requests.parquet', filename = true) AS r
    JOIN (
        SELECT run_id, workload, any_value(candidate) AS candidate
        FROM read_parquet('{study}/stages/*/table.parquet', union_by_name = true)
        GROUP BY ALL
    ) AS t ON t.run_id = parse_path(r.filename)[-2]
    WHERE r.phase = 'measured' AND r.error IS NULL
""").df()
print(requests.groupby(["workload", "candidate"])[["ttft_ms", "e2el_ms"]].quantile([0.5, 0.99]).unstack())

# %% [markdown]
# How the time to the first token is distributed, a line a candidate. In a notebook the last line of a cell is drawn.

# %%
chart = (
    alt.Chart(requests)
    .transform_window(rank="percent_rank()", sort=[{"field": "ttft_ms"}], groupby=["candidate", "workload"])
    .mark_line()
    .encode(x=alt.X("ttft_ms:Q", title="TTFT (ms)"), y=alt.Y("rank:Q", title="Share of requests"), color="candidate:N")
    .facet("workload:N", columns=2)
)
chart  # noqa: B018
