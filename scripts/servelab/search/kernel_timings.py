"""Reads step times from aiconfigurator-core's tables (Apache-2.0), in an environment of its own, with nothing of ours.

Standard input and output are JSON: queries, and for each the milliseconds of a step by prompt tokens, from 0 on, and by
sequences.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def main() -> None:
    logging.disable(logging.CRITICAL)
    asked = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")  # the package prints on standard output
    os.dup2(2, 1)
    found = []
    for query in asked["queries"]:
        try:
            found.append(_steps(query, asked["prompt_tokens"], asked["sequences"]))
        except Exception as error:
            found.append({"error": f"{type(error).__name__}: {error}"[:300]})
    configs = {name: _config(name) for name in {each["model"] for each in asked["queries"]}}
    json.dump({"configs": configs, "steps": found}, out)


def _steps(query: dict[str, Any], prompt_tokens: list[int], sequences: list[int]) -> dict[str, Any]:
    from aiconfigurator_core.sdk.engine import EngineHandle  # type: ignore[import-not-found,unused-ignore]

    with tempfile.TemporaryDirectory() as folder:
        model = query["model"]
        if query.get("config") and _config(model) is None:
            Path(folder, "config.json").write_text(json.dumps(query["config"]))
            model = folder
        engine = EngineHandle.compile(model, query["system"], query["backend"], **query["settings"])
    ahead, after = query["input_tokens"], max(2, query["output_tokens"])
    decode = [engine.decode_step_latency(count, ahead, after) for count in sequences]
    mixed = (
        [engine.mixed_step_latency(each, count, ahead, after) for count in sequences] for each in prompt_tokens[1:]
    )
    return {"ms": [decode, *mixed]}


def _config(model: str) -> dict[str, Any] | None:
    import aiconfigurator_core  # type: ignore[import-not-found,unused-ignore]

    file = Path(aiconfigurator_core.__file__).parent / "model_configs" / f"{model.replace('/', '--')}_config.json"
    return json.loads(file.read_text()) if file.exists() else None


if __name__ == "__main__":
    main()
