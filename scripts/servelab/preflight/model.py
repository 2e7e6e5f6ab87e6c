"""Model and variants: fetched already, or whether their source would give them."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

from servelab.memory_estimate import gib
from servelab.models import FOLDER_FILES
from servelab.preflight import CHECKS, Check, Finding
from servelab.preflight.place import Place
from servelab.sources import Probe
from servelab.spec import ModelFormat


def look(place: Place) -> Iterator[Finding]:
    """One finding for each set of weights of the study."""
    model = place.project.study.model
    for name in ["base", *model.variants]:
        of = f"model {model.variant_id(name)}"
        if quantization := model.variant(name).quantization:
            yield Finding(of, "ok", f"made here from {model.id}, in {quantization}")
            continue
        source = model.variant_source(name)
        stored = place.fetched_model(source)
        probe = None if stored else place.probe(source)
        if stored:
            yield Finding(of, "ok", f"in {stored.parent}")
        elif probe is None:
            yield Finding(of, "unknown", "not fetched yet")
        else:
            yield judge(of, probe, model.variant_format(name))


def judge(of: str, probe: Probe, model_format: ModelFormat) -> Finding:
    """What a source's answer means: a folder must hold all that an engine needs."""
    if probe.there is None:
        return Finding(of, "unknown", probe.saw, probe.action)
    if not probe.there:
        return Finding(of, "error", probe.saw, probe.action)
    patterns = FOLDER_FILES if model_format == "safetensors" else ("*.gguf",)
    missing = [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in probe.files)]
    if missing:
        saw = f"{probe.saw}, without {', '.join(f'`{pattern}`' for pattern in missing)}"
        return Finding(of, "error", saw, f"name one that holds {model_format}")
    weights = sum(size for name, size in probe.files.items() if fnmatch(name, patterns[-1]))
    return Finding(of, "ok", f"{probe.saw}, {gib(weights)} of weights")


CHECKS.register("model", Check("model", "each set of weights: fetched, or within reach of its source", look))
