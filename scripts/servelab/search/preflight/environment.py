"""Checks what a deployment is made of: environments, weights, accelerators, and a load that shows the objective."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

from servelab.assets.model_files import FOLDER_FILES
from servelab.assets.model_shape import ModelShape
from servelab.assets.sources import Probe
from servelab.core.errors import ServelabError
from servelab.core.files import own_or_shipped
from servelab.core.run_spec import ModelFormat, ModelSource
from servelab.engines.memory import gib
from servelab.engines.options import Parallel
from servelab.engines.runtimes import RUNTIMES
from servelab.metrics.definitions import METRICS
from servelab.search.preflight import CHECKS, Finding, PreflightCheck
from servelab.search.preflight.place import MODEL_ACTION, Place
from servelab.study.study import Study


def look_at(place: Place, alias: str) -> Finding:
    """The finding of one engine of the study."""
    lock, entry = place.project.lock(alias), place.project.study.engines[alias]
    of = f"{alias} {entry.version}"
    runtime = RUNTIMES.get(entry.runtime)
    try:
        environment = place.environment(alias)
    except ServelabError as error:
        return Finding(of, "error", str(error), "remove its folder; the next run builds it again")
    if environment is None and not place.ask:
        return Finding(of, "unknown", "not built yet", None)
    obstacle = runtime.obstacle(place.project.engine(alias), lock) if place.ask else None
    if obstacle:
        first, *_, last = obstacle.splitlines()[:1] + obstacle.splitlines()[-1:]
        saw = obstacle if first == last else f"{first.partition(': ')[0]}: {last}"
        return Finding(of, "error", saw, _remedy(place, alias))
    if environment is None:
        return Finding(of, "ok", f"not built yet; the first run builds it from {lock.name} ({entry.runtime})")
    return Finding(of, "ok", f"built from {lock.name} ({entry.runtime}); it reports version {environment.version}")


def _remedy(place: Place, alias: str) -> str:
    """The other ways to serve the same release: another runtime, or the lock that is there for it."""
    entry = place.project.study.engines[alias]
    lock = f"envs/{place.project.engine(alias).name}-{entry.version}.lock.txt"
    if entry.runtime != "venv" and own_or_shipped(place.project.root, lock).exists():
        packages = f"`{alias}: {{version: {entry.version}, lock: {lock}}}`"
        return f"run where it is installed, use another runtime, or serve from packages: {packages} (docs/engines.md)"
    return "run this where it is installed, or use another runtime (docs/engines.md)"


CHECKS.register(
    "environment",
    PreflightCheck(
        "environment",
        "each engine's environment or image: built, or can be built",
        lambda place: [look_at(place, alias) for alias in place.project.study.engines],
    ),
)


def _models(place: Place) -> Iterator[Finding]:
    """One finding per set of weights of the study."""
    model = place.project.study.model
    sources: list[tuple[str, ModelSource, ModelFormat | None, str | None]] = [
        (
            model.variant_id(name),
            model.variant_source(name),
            model.variant_format(name),
            model.variant(name).quantization,
        )
        for name in ["base", *model.variants]
    ]
    sources += [(name, source, None, None) for name, source in model.second_sources.items()]
    for name, source, model_format, quantization in sources:
        of, stored = f"model {name}", place.stored_model(source)
        if quantization:
            yield Finding(of, "ok", f"converted here from {model.id} to {quantization}")
        elif stored:
            yield Finding(of, "ok", f"in {stored.parent}")
        elif (probe := place.probe(source)) is None:
            yield Finding(of, "unknown", "not fetched yet")
        else:
            yield judge_model(of, probe, model_format)


def judge_model(of: str, probe: Probe, model_format: ModelFormat | None) -> Finding:
    """The finding for a source's answer: a folder must contain all files that an engine needs, if it needs any."""
    if not probe.there:
        return Finding(of, "unknown" if probe.there is None else "error", probe.saw, probe.action)
    patterns = {"safetensors": FOLDER_FILES, "gguf": ("*.gguf",), None: ()}[model_format]
    missing = [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in probe.files)]
    if missing:
        saw = f"{probe.saw}, without {', '.join(f'`{pattern}`' for pattern in missing)}"
        return Finding(of, "error", saw, f"name a source with {model_format} files")
    weights = sum(size for name, size in probe.files.items() if not patterns or fnmatch(name, patterns[-1]))
    return Finding(of, "ok", f"{probe.saw}, {gib(weights)} of weights")


CHECKS.register("model", PreflightCheck("model", "each set of weights: fetched, or available at its source", _models))


_AT_ONCE = "at rate `inf` without `max_concurrency` all requests are sent at once: {} then measures the queue"
_IN_TURN = (
    "at rate `inf` the next request is sent when one ends, so a slow server gets less load: {} depends on "
    "`max_concurrency`, not on users who arrive"
)
_ACTION = "set `request_rate` (of `protocol` or of the workload) to the rate of your users, or `arrivals: replay`"


def judge_load(study: Study) -> Finding:
    """A warning if latencies or SLOs decide at rate `inf`.

    With `max_concurrency`, a limit on a latency is one at that concurrency: only the objective and SLOs are looked at.
    """
    of, protocol = f"objective on {study.objective.on}", study.protocol_of(study.objective.on)
    if protocol.request_rate != "inf" or protocol.arrivals == "replay":
        return Finding(of, "ok", "requests arrive at a rate of their own")
    limited = protocol.max_concurrency is not None
    objectives = [each.metric for each in (study.objective, study.objective.second) if each]
    metrics = {tag: METRICS.get(tag) for tag in (*objectives, *study.objective.constraints)}
    affected = [
        tag
        for tag, metric in metrics.items()
        if metric.needs_slos or (metric.is_latency and (tag in objectives or not limited))
    ]
    if affected:
        return Finding(of, "warning", (_IN_TURN if limited else _AT_ONCE).format(" and ".join(affected)), _ACTION)
    return Finding(of, "ok", "neither latencies nor SLOs depend on a rate that is not set")


CHECKS.register(
    "load",
    PreflightCheck(
        "load",
        "whether latencies and SLOs are asked for at a request rate",
        lambda place: [judge_load(place.project.study)],
    ),
)


def _accelerators(place: Place) -> Iterator[Finding]:
    """One finding per candidate."""
    for known in place.candidates:
        count = known.configuration.per_server
        parallel = place.engine(known).parallel(known.configuration.options, known.configuration.arguments, count)
        shape = place.facts(known.planned.runs[0].spec.model).shape
        yield judge_accelerators(known.name, count, parallel, shape)


def judge_accelerators(of: str, count: int, parallel: Parallel, shape: ModelShape | None) -> Finding:
    """Parallel sizes must use all accelerators, and heads must be divisible by the tensor parallel size.

    Each accelerator computes whole attention heads. KV heads are distributed, or copied if there are fewer of them than
    accelerators. vLLM and SGLang check the same when they load a model.
    """
    saw = f"{parallel} of {count}"
    if parallel.accelerators > count:
        action = f"set `accelerators: {parallel.accelerators}`, or smaller sizes"
        return Finding(of, "error", f"{parallel} needs {parallel.accelerators} accelerators, it has {count}", action)
    if parallel.accelerators < count:
        idle = f"{parallel} uses {parallel.accelerators} of {count} accelerators, the others are idle"
        action = f"set `accelerators: {parallel.accelerators}`, or data_parallel_size"
        return Finding(of, "warning" if count % parallel.accelerators == 0 else "error", idle, action)
    if parallel.accelerators == 1:
        return Finding(of, "ok", "1 accelerator")
    if shape is None:
        return Finding(of, "unknown", f"{saw}; the model's heads are not known here", MODEL_ACTION)
    if shape.attention_heads % parallel.tensor:
        saw = f"{shape.attention_heads} attention heads are not divisible by tensor parallel size {parallel.tensor}"
        return Finding(of, "error", saw, "use a tensor_parallel_size that divides them")
    few, many = sorted((shape.kv_heads, parallel.tensor))
    if many % few:
        saw = f"neither of {shape.kv_heads} KV heads and tensor parallel size {parallel.tensor} divides the other"
        return Finding(of, "error", saw, "use another tensor_parallel_size")
    if parallel.pipeline > shape.layers:
        saw = f"{shape.layers} layers, pipeline parallel size {parallel.pipeline}"
        return Finding(of, "error", saw, "use a smaller pipeline_parallel_size")
    return Finding(of, "ok", f"{saw}; {shape.attention_heads} attention heads, {shape.kv_heads} KV heads")


CHECKS.register(
    "accelerators",
    PreflightCheck("accelerators", "parallel sizes against accelerators and the model's heads", _accelerators),
)
