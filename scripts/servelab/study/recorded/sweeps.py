"""Sweeps of a recorded study: a workload with several loads becomes one workload for each, as the file is read."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from servelab.study.curves import Curve, point_name

_AT = {"max_concurrency": "{:g} in flight", "request_rate": "{:g} requests/s"}


def at(of: str, level: float) -> str:
    """A point in words: `4 in flight`, `2.5 requests/s`."""
    return _AT[of].format(level)


def sweep_of(point: str, load: Curve) -> str:
    """Name of the workload that a point was made of; its `load` has the point's value alone."""
    return point.removesuffix(point_name("", load.of, load.values[0]))


def with_points(study: Any) -> Any:
    """A study's file, as data, with a workload for each point of a `load`; what is wrong in it stays for the checks.

    Logs and commands of a candidate on such a workload are those of each of its points. `ValueError` if `prompts` has
    another number of entries than there are points.
    """
    if not isinstance(study, dict) or not isinstance(given := study.get("workloads"), dict):
        return study
    points = {name: found for name, each in given.items() if (found := _points(name, each))}
    if not points:
        return study
    workloads = {
        name: each for written, own in given.items() for name, each in points.get(written, {written: own}).items()
    }
    stages = [_stage(stage, points) for stage in _listed(study.get("stages"))]
    return {**study, "workloads": workloads, "stages": stages or study.get("stages")}


def _points(name: Any, workload: Any) -> dict[str, Any]:
    """The workloads of a workload's points; none if it has one load."""
    if not isinstance(workload, dict) or "load" not in workload:
        return {}
    try:
        curve = Curve.model_validate(workload["load"])
    except ValidationError:
        return {}
    prompts = workload.get("prompts")
    if isinstance(prompts, list) and len(prompts) != len(curve.values):
        raise ValueError(f"workloads.{name}.prompts has {len(prompts)} numbers, and `load` {len(curve.values)} points")
    counts = prompts if isinstance(prompts, list) else [prompts] * len(curve.values)
    found = {}
    for level, count in zip(curve.values, counts, strict=True):
        of_point = {"load": {curve.of: [level]}, curve.of: level, "prompts": count}
        title = f"{workload.get('title', name)}, {at(curve.of, level)}"
        found[point_name(str(name), curve.of, level)] = {**workload, **of_point, "title": title}
    return found


def _stage(stage: Any, points: dict[str, dict[str, Any]]) -> Any:
    if not isinstance(stage, dict):
        return stage
    return stage | {"candidates": [_candidate(each, points) for each in _listed(stage.get("candidates"))]}


def _candidate(candidate: Any, points: dict[str, dict[str, Any]]) -> Any:
    if not isinstance(candidate, dict):
        return candidate
    changed = {}
    for key in ("logs", "commands"):
        if isinstance(of_workload := candidate.get(key), dict):
            changed[key] = {
                name: value for written, value in of_workload.items() for name in points.get(written, (written,))
            }
    return candidate | changed


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
