"""Candidates that Ascend's parameter optimizer proposed, from the `data_storage_*.csv` that it leaves.

Source: output file and default configuration of `msmodeling optix`, which was msServiceProfiler's optimizer before
(`docs/en/user_guide/optix_user_guide.md`, `optix/config.toml`, `optix/optimizer/store.py`). What it measured is not
read: its load is another one. A row is a set of settings, in order of `fitness`, the smallest first.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servelab.core.errors import ConfigError

_PLACES = {
    "max_num_seqs": ("options", "max_num_seqs"),
    "max_num_batched_tokens": ("options", "max_num_batched_tokens"),
    "max_batch_size": ("options", "max_num_seqs"),
    "max_prefill_batch_size": ("arguments", "ScheduleConfig.maxPrefillBatchSize"),
    "prefill_time_ms_per_req": ("arguments", "ScheduleConfig.prefillTimeMsPerReq"),
    "decode_time_ms_per_req": ("arguments", "ScheduleConfig.decodeTimeMsPerReq"),
    "support_select_batch": ("arguments", "ScheduleConfig.supportSelectBatch"),
    "max_queue_delay_microseconds": ("arguments", "ScheduleConfig.maxQueueDelayMicroseconds"),
    "max_preempt_count": ("arguments", "ScheduleConfig.maxPreemptCount"),
}
"""Names of its default configuration, in small letters → where a candidate has the setting."""
_NOT_SETTINGS = frozenset(
    {
        *("case_id", "generate_speed", "time_to_first_token", "time_per_output_token", "success_rate", "throughput"),
        *("concurrency", "requestrate", "error", "backup", "real_evaluation", "fitness", "num_prompts"),
        *("would_early_exit", "early_exit", "early_exit_reason", "early_exit_decision_elapsed_seconds"),
        *("estimated_time_saved_seconds", "estimated_time_saved_ratio", "result_source", "usable_as_best"),
        *("llm_model", "dataset_path", "simulator", "max_output_len"),
    }
)
"""Measurements, the load, and what describes the search."""
_NOT_SETTINGS_BEGIN = ("metrics_window_", "warmup_")
_VARIABLES_BEGIN = ("VLLM_", "HCCL_", "ASCEND_")


def proposed_candidates(file: Path, most: int) -> list[dict[str, Any]]:
    """At most that many candidates, the best first, no settings twice; `ConfigError` if there is none."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            rows = list(csv.DictReader(text, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"--proposed {file}: {error}") from error
    if not rows or not {"fitness", "generate_speed"} <= rows[0].keys():
        raise ConfigError(f"--proposed {file}: no row, or no `fitness`: not the optimizer's data_storage_*.csv")
    places = {column: _place(file, column) for column in rows[0] if column and _is_setting(column)}
    found: list[dict[str, Any]] = []
    for row in sorted(filter(_is_usable, rows), key=lambda row: float(row["fitness"])):
        settings: dict[str, Any] = {}
        for column, (group, name) in places.items():
            if value := (row[column] or "").strip():
                settings.setdefault(group, {})[name] = value if group == "environment_variables" else _value(value)
        if settings and settings not in found:
            found.append(settings)
    if not found:
        raise ConfigError(f"--proposed {file}: no row without an error that has a fitness and a setting")
    return [{"label": f"proposed {rank}", **settings} for rank, settings in enumerate(found[:most], start=1)]


def _is_setting(column: str) -> bool:
    return column.lower() not in _NOT_SETTINGS and not column.startswith(_NOT_SETTINGS_BEGIN)


def _place(file: Path, column: str) -> tuple[str, str]:
    if column.startswith(_VARIABLES_BEGIN):
        return "environment_variables", column
    if place := _PLACES.get(column.lower()):
        return place
    raise ConfigError(
        f"--proposed {file}: column `{column}` is none of the optimizer's default configuration, and the file does not "
        "say what it stands for: rename it as there, or remove it and edit the study"
    )


def _is_usable(row: Mapping[str, str | None]) -> bool:
    try:
        fitness = float(row["fitness"] or "nan")
    except ValueError:
        return False
    ended_early = (row.get("usable_as_best") or "").strip().lower() == "false"
    return math.isfinite(fitness) and not (row.get("error") or "").strip() and not ended_early


def _value(text: str) -> bool | int | float | str:
    """As YAML would have it: a whole number stays one, though a table writes 64.0."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
