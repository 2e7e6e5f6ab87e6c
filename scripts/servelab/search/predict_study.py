"""Predictions for every combination of a study with `search.prior`: they order its search, and its plan shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from servelab.assets.known_models import known_bytes
from servelab.assets.model_shape import shape_of_config
from servelab.assets.model_work import read_facts, work_of_config
from servelab.assets.sources import MODEL_PROBES
from servelab.core.errors import Outage
from servelab.engines.accelerator_boards import GIB, AcceleratorBoard, board_of
from servelab.engines.memory import division_of, kv_tokens
from servelab.machine.rates import published_rates
from servelab.metrics.objective import per_basis
from servelab.results.expected_times import mean_lengths
from servelab.search.options_space import space_of
from servelab.search.predict import (
    ERRORS,
    PredictedServer,
    Sent,
    Steps,
    asked_timings,
    broken,
    predict,
    query_of,
    roofline_steps,
)
from servelab.study.configuration import Configuration, key_of
from servelab.study.predictions import KERNEL_TIMINGS, Predicted, Predictions
from servelab.study.project import Project

_PROBE_S = 10.0
_SPLITS = (1, 2, 4)


def predictions_of(
    project: Project, python: Path | None, config: Mapping[str, Any] | None = None, of: Sequence[Configuration] = ()
) -> Predictions:
    """Predictions `of` configurations, or of all combinations: by kernel timings that `python` has, or a roofline.

    `config` is the model's config.json; by default that of the tables, else of the model's source, whose silence is an
    `Outage`: other predictions would change plans.
    """
    study = project.study
    metric, basis = study.objective.metric_and_basis
    variants = of or [each.configuration for each in space_of(study).variants]
    on, model = study.objective.on, study.model.variant_id("base")
    requests = float(project.workloads[on].parameters["num_requests"])
    sent = Sent(requests, *mean_lengths(project.workloads[on].parameters), requests)
    limits = {key_of(each): study.protocol_of(on, each.accelerators).max_concurrency for each in variants}
    if config is None and python is not None:
        config = asked_timings(python, [{"model": model}])[1][model]
    if config is None:
        source = study.model.variant_source("base")
        probe = MODEL_PROBES.get(source.kind)(source, _PROBE_S)
        if probe.there is None:
            raise Outage(f"{probe.saw}; {probe.action}")
        config = read_facts(Path(source.path)).config if source.kind == "path" and probe.there else probe.config
    work, rates = work_of_config(config or {}), published_rates(study.hardware.accelerator)
    served = {key_of(each): its for each in variants if config and (its := _served(project, each, config))}
    tables, refused = _tables(project, python, list(served.values()), config, sent) if python else ({}, [])
    refused += [] if served else [f"{model}: neither the tables nor its source have a config.json that is known"]
    figures: dict[str, Predicted] = {}
    found = {key: tables.get(_key(query_of(each, model, config, sent))) for key, each in served.items()}
    missing = {each.engine for key, each in served.items() if found[key] is None}  # all of it by one source
    for key, each in served.items():
        steps = None if each.engine in missing else found[key]
        if steps is None and work is not None and rates is not None:
            steps = roofline_steps(each, work, rates, sent)
        own = replace(sent, in_flight=float(limits[key] or requests))
        if steps is not None and (figure := predict(each, steps, own)) is not None:
            figures[key] = figure
    sources = {each.source for each in figures.values()}
    per = {key_of(each): per_basis(basis, each.accelerators, study.hardware.per_node)[0] for each in variants}
    return Predictions(
        values={key: getattr(each, metric) * per[key] for key, each in figures.items()},
        figures=figures,
        error=max(map(ERRORS.__getitem__, sources), default=0.0),
        source="aiconfigurator-core's kernel timings, Apache-2.0" if KERNEL_TIMINGS in sources else "a roofline",
        refused=refused,
    )


def _served(project: Project, configuration: Configuration, config: Mapping[str, Any]) -> PredictedServer | None:
    """A configuration as predictions see it; None if its memory is not known, or speculation hides its steps."""
    study, engine = project.study, project.engine(configuration.engine)
    options, arguments = configuration.options, configuration.arguments
    version, name = study.engines[configuration.engine].version, study.model.variant_id(configuration.model)
    board: AcceleratorBoard = board_of(study.hardware.accelerator, is_cpu=study.hardware.device == "cpu")
    shape, work, base = shape_of_config(config), work_of_config(config), known_bytes(study.model.variant_id("base"))
    size = base or (work and work.body_bytes + work.head_bytes + work.experts * work.expert_bytes)
    if shape is None or board.memory_gib is None or not size or options.get("speculative_decoding"):
        return None
    parallel = engine.parallel(options, arguments, configuration.accelerators)
    division = division_of(engine, version, board, engine.effective(version, board, options, arguments), parallel)
    if division is None:
        return None
    weights = _weights(name, arguments)
    if weights.startswith("fp8") and not _weights(study.model.variant_id("base"), {}).startswith("fp8"):
        size *= 0.52
    return PredictedServer(
        engine=engine.name,
        accelerator=study.hardware.accelerator,
        weights=weights,
        kv_bytes=division.number_bytes,
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        copies=parallel.data,
        expert_parallel=bool(options.get("expert_parallel")),
        sequences=division.sequences,
        batched_tokens=division.batched_tokens,
        kv_tokens=kv_tokens(shape, size, board.memory_gib * GIB, division, 4096),
    )


def _weights(model: str, arguments: Mapping[str, Any]) -> str:
    """The format of the weights, as the tables name it, by the model's name and the engine's own argument."""
    given = str(next((value for name, value in arguments.items() if "quantization" in name), ""))
    if "fp8" in f"{given} {model}".lower():
        return "fp8" if "fp8" in given.lower() or re.search("dynamic|tensor", model, re.IGNORECASE) else "fp8_block"
    return "other" if given or re.search("awq|gptq|int4|int8|w4|w8|fp4", model, re.IGNORECASE) else "bfloat16"


def _key(query: Mapping[str, Any] | None) -> str:
    return json.dumps(query, sort_keys=True)


def _tables(
    project: Project, python: Path, served: Sequence[PredictedServer], config: Mapping[str, Any] | None, sent: Sent
) -> tuple[dict[str, Steps], list[str]]:
    """The sound tables by their query, and why others are not used. Each is read on 1, 2 and 4 devices as well."""
    model = project.study.model.variant_id("base")
    asked: dict[str, dict[str, Any]] = {}
    kinds: dict[str, dict[int, str]] = {}
    for each in served:
        for split in {*_SPLITS, each.tensor}:
            own = each if split == each.tensor else replace(each, tensor=split, expert_parallel=False)
            if query := query_of(own, model, config, sent):
                asked[_key(query)] = query
                kinds.setdefault(_kind(query), {})[split] = _key(query)
    found = dict(zip(asked, asked_timings(python, list(asked.values()))[0], strict=True))
    sound = {key: each for key, each in found.items() if isinstance(each, Steps)}
    refused = [f"{asked[key]['settings']}: {each}" for key, each in found.items() if isinstance(each, str)]
    for kind, splits in kinds.items():
        if why := broken({split: sound[key] for split, key in splits.items() if key in sound}):
            query = json.loads(kind)
            refused.append(f"{query['backend']} {query['settings']['gemm_quant_mode']}: {why}")
            sound = {key: each for key, each in sound.items() if _kind(asked[key]) != kind}
    return sound, refused


def _kind(query: Mapping[str, Any]) -> str:
    """Equal for queries that differ in the number of devices only."""
    settings = {name: each for name, each in query["settings"].items() if not name.endswith("_size")}
    return _key({**query, "settings": settings})
