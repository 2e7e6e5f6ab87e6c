"""Predicted against measured: the rows of published pages on the workload that decides, and what would be left out.

`TIMINGS_PYTHON` names the Python of an environment of envs/kernel-timings.lock.txt. Each row was measured once.
"""

import math
import os
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest
import yaml

from servelab.core.yaml_file import read_yaml
from servelab.recorded.logs import Logs
from servelab.search.predict_study import predictions_of
from servelab.search.prior import LEAST
from servelab.search.project import load_project
from servelab.study.configuration import Configuration, key_of
from servelab.study.recorded.study import load_recorded
from servelab.tune.typed_command import read_command

pytestmark = [pytest.mark.bench, pytest.mark.skipif("TIMINGS_PYTHON" not in os.environ, reason="no kernel timings")]
ROOT = Path(__file__).parents[2]
PAGES = ("qwen3-14b-h100", "qwen3-32b-h100", "qwen3-235b-a22b-h100", "qwen3.5-9b-h100", "qwen3-30b-a3b-910b")


@pytest.mark.parametrize("page", PAGES)
def test_predicted_against_measured(page, tmp_path, capsys):
    study = load_recorded(folder := ROOT / "config/recorded" / page)
    logs, on, rows, served = Logs(study, folder), study.objective.on, [], []
    for reference, each in study.candidates.items():
        if found := [value for block in logs.rounds(reference, on) if (value := block.value("total_tokens_per_s"))]:
            read = read_command([each.command.replace("mindie serve", "vllm serve")])  # the page writes it as vLLM's
            given = {"options": read.options, "arguments": read.arguments, "environment_variables": read.variables}
            engine = "vllm-ascend" if page.endswith("910b") and each.engine == "vllm" else each.engine
            served.append(Configuration(engine=engine, model=each.model, accelerators=each.accelerators, **given))
            rows.append([*reference.split("/"), each.engine, fmean(found)])
    file = tmp_path / f"{page}.yaml"
    search = {"search": {"strategy": "adaptive", "prior": "kernel-timings"}}
    file.write_text(yaml.safe_dump(read_yaml(ROOT / f"config/studies/{page}.yaml") | search))
    kind = "Qwen3MoeForCausalLM" if "-a" in page else "Qwen3ForCausalLM"  # the page's study has neither
    config = {"architectures": [kind], "max_position_embeddings": 40960, **study.model.config_of("base")}
    found = predictions_of(load_project(file, ROOT), Path(os.environ["TIMINGS_PYTHON"]), config, served)
    table = pd.DataFrame(rows, columns=["stage", "name", "engine", "measured"])
    figures = [found.figures.get(key_of(each)) for each in served]
    table["predicted"] = [figure.total_tokens_per_s if figure else math.nan for figure in figures]
    table["by"] = [figure.source if figure else "" for figure in figures]
    missed = (table["predicted"] / table["measured"]).map(math.log)
    table["scaled_percent"] = 100 * (missed - missed.groupby(table["engine"]).transform("mean")).map(math.expm1)
    table["left_out"] = table["predicted"] < LEAST * table.groupby(["stage", "engine"])["predicted"].transform("max")
    table["best"] = table["measured"] == table.groupby("stage")["measured"].transform("max")
    with capsys.disabled():
        print(f"\n{page}: {found.source}; not used: {found.refused[:3]}\n{table.round(1).to_string(index=False)}")
    assert not (table["best"] & table["left_out"]).any()
