"""Checks the model and its variants: whether they are fetched, or their source has them."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

from servelab.assets.model_files import FOLDER_FILES
from servelab.assets.sources import Probe
from servelab.core.run_spec import ModelFormat
from servelab.engines.roofline import gib
from servelab.search.preflight import CHECKS, Check, Finding
from servelab.search.preflight.place import Place


def look(place: Place) -> Iterator[Finding]:
    """One finding per set of weights of the study."""
    model = place.project.study.model
    for name in ["base", *model.variants]:
        of = f"model {model.variant_id(name)}"
        if quantization := model.variant(name).quantization:
            yield Finding(of, "ok", f"converted here from {model.id} to {quantization}")
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
    """The finding for a source's answer: a folder must contain all files that an engine needs."""
    if probe.there is None:
        return Finding(of, "unknown", probe.saw, probe.action)
    if not probe.there:
        return Finding(of, "error", probe.saw, probe.action)
    patterns = FOLDER_FILES if model_format == "safetensors" else ("*.gguf",)
    missing = [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in probe.files)]
    if missing:
        saw = f"{probe.saw}, without {', '.join(f'`{pattern}`' for pattern in missing)}"
        return Finding(of, "error", saw, f"name a source with {model_format} files")
    weights = sum(size for name, size in probe.files.items() if fnmatch(name, patterns[-1]))
    return Finding(of, "ok", f"{probe.saw}, {gib(weights)} of weights")


CHECKS.register("model", Check("model", "each set of weights: fetched, or available at its source", look))
