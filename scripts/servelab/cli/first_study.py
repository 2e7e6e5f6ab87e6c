"""A first study for a model on some hardware: what it needs is taken from the checkout's studies on such hardware.

Engines with their versions and locks, the workload and the protocol are those of an existing study; model, hardware and
question are the user's. The stages ask what is worth asking of every engine. All of it is there to be edited.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import yaml
from packaging.version import Version
from pydantic import ValidationError

from servelab.assets.sources.hub import endpoint
from servelab.assets.sources.package import pin_model
from servelab.cli.checkout import CONFIG, STUDIES
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.files import CHECKOUT, own_or_shipped, write_text
from servelab.core.registry import nearest
from servelab.core.yaml_file import read_yaml
from servelab.machine.devices import DEVICES
from servelab.search.project import load_project
from servelab.study.study import Study, load_study

_SCHEMA = "schema/study.schema.json"
_SEQUENCES = (16, 64, 256)
_HEAD = """\
# yaml-language-server: $schema={schema}
# Begun by `servelab init`; docs/studies.md explains every key. Edit the stages: they are the questions of this study.
"""


@dataclass(frozen=True)
class AskedHardware:
    """What a study measures on."""

    device: str
    """Kind of device, a name of `DEVICES`."""
    accelerator: str
    per_node: int


@dataclass(frozen=True)
class AskedStudy:
    """What the user decides."""

    name: str
    model: dict[str, Any]
    """The study's `model`."""
    hardware: AskedHardware
    engines: Sequence[str]
    """The first serves the baseline."""
    metric: str
    workload: str | None = None
    """None: that of the existing study."""
    accelerators: int = 1
    """For each server."""
    context_length: int | None = None
    """Longest sequence in tokens; None: the engine's default."""


def found_hardware() -> AskedHardware:
    """The accelerators of this machine, or else its CPU."""
    for kind in sorted(DEVICES, key=lambda each: not each.gres):  # those that batch systems allocate come first
        with suppress(Outage):
            if devices := kind.find():
                return AskedHardware(kind.name, devices[0].name if kind.gres else kind.name, len(devices))
    raise ConfigError("no device was found on this machine; give --hardware and --device")


def known_engines(root: Path, device: str) -> dict[str, dict[str, Any]]:
    """Engines that the checkout's studies use on a kind of device, each at its newest version there."""
    found: dict[str, dict[str, Any]] = {}
    for study in _examples(root, device):
        for alias, engine in study.engines.items():
            before = found.get(alias)
            if engine.engine is None and (before is None or Version(before["version"]) < Version(engine.version)):
                found[alias] = engine.model_dump(mode="json", exclude_defaults=True)
    return found


def write_first_study(asked: AskedStudy, root: Path) -> Path:
    """Writes config/studies/<name>.yaml of the folder `root`; its path; `ConfigError` and no file if it is wrong."""
    text = _HEAD + yaml.safe_dump(first_study(asked, root), sort_keys=False, allow_unicode=True, width=120)
    return write_study(asked.name, text.replace("'on':", "on:"), root)  # a word of its own only to other readers


def write_study(name: str, text: str, root: Path, workloads: str | None = None) -> Path:
    """Writes a study and returns its path; `{schema}` in it becomes the schema's place.

    `workloads` is added to config/workloads.yaml. `ConfigError`, and no file, if anything is wrong.
    A folder without config/config.yaml becomes a folder of studies: the file is written too, and names this study.
    """
    file = root / STUDIES / f"{name}.yaml"
    if file.exists():
        raise ConfigError(f"{file} exists; give the study another name")
    own = (root / "config" / _SCHEMA).exists()
    text = text.replace("{schema}", f"../{_SCHEMA}" if own else str(CHECKOUT / "config" / _SCHEMA))
    known = root / "config/workloads.yaml"
    before = own_or_shipped(root, "config/workloads.yaml").read_text(encoding="utf-8") if workloads else ""
    had = known.exists()
    if workloads:
        write_text(known, f"{before}{workloads}")
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / file.name
        draft.write_text(text, encoding="utf-8")
        try:
            load_project(draft, root)
        except ConfigError as error:
            if workloads and had:
                write_text(known, before)
            elif workloads:
                known.unlink()
            raise ConfigError(str(error).replace(str(draft), str(file))) from None
    write_text(file, text)
    if not (root / CONFIG).exists():
        write_text(root / CONFIG, f"studies: [{name}]\n")
    return file


def first_study(asked: AskedStudy, root: Path) -> dict[str, Any]:
    """The study as plain data; `ConfigError` if no study of the checkout has such an engine on such hardware."""
    device = asked.hardware.device
    known = known_engines(root, device)
    for name in asked.engines:
        if name not in known:
            raise ConfigError(
                f"--engines {name}: no study in {root / STUDIES} uses it on {device}{nearest(name, list(known))}. "
                "For another one see 'Another version' in docs/engines.md"
            )
    example = closest_study(root, device, asked.engines)
    options: dict[str, Any] = {"context_length": asked.context_length} if asked.context_length else {}
    if asked.accelerators > 1:
        options["tensor_parallel_size"] = asked.accelerators
    baseline = {
        "engine": asked.engines[0],
        **({"options": options} if options else {}),
        **({"accelerators": asked.accelerators} if asked.accelerators > 1 else {}),
    }
    workload = asked.workload or example.objective.on
    return {
        "study": asked.name,
        "title": f"{asked.model['id']} on {asked.hardware.accelerator}",
        "model": asked.model,
        "hardware": {
            "accelerator": asked.hardware.accelerator,
            "device": device,
            "per_node": asked.hardware.per_node,
        },
        "engines": {name: known[name] for name in asked.engines},
        "objective": {"metric": asked.metric, "on": workload},
        "protocol": example.protocol.model_dump(mode="json", exclude_defaults=True),
        "answers": {},
        "search": {"strategy": "staged"},
        "baseline": baseline,
        "stages": _stages(asked.engines, root, workload),
        "workloads": [workload],
    }


def _stages(engines: Sequence[str], root: Path, workload: str) -> list[dict[str, Any]]:
    """Questions that every engine has an answer to; not more sequences than the workload has requests."""
    known = read_yaml(own_or_shipped(root, "config/workloads.yaml"))
    requests = known.get(workload, {}).get("parameters", {}).get("num_requests", _SEQUENCES[-1])
    sequences = [each for each in _SEQUENCES if each <= requests] or [requests]
    stages: list[dict[str, Any]] = []
    if len(engines) > 1:
        others = [{"engine": name} for name in engines[1:]]
        stages.append({"name": "engine", "title": "Which engine", "candidates": others})
    for name, title, option, values in (
        ("sequences", "How many sequences at once", "max_num_seqs", sequences),
        ("batched-tokens", "Tokens in one step", "max_num_batched_tokens", (2048, 8192)),
    ):
        stages.append({"name": name, "title": title, "candidates": [{"options": {option: value}} for value in values]})
    return stages


def _examples(root: Path, device: str) -> list[Study]:
    """Studies of the folder and of the checkout on a kind of device, by name; those with a mistake are skipped."""
    found = []
    files = {file.name: file for folder in (CHECKOUT, root) for file in (folder / STUDIES).glob("*.yaml")}
    for _, file in sorted(files.items()):
        with suppress(ConfigError):
            study = load_study(file)
            if study.hardware.device == device:
                found.append(study)
    return found


def closest_study(root: Path, device: str, engines: Sequence[str]) -> Study:
    """The study with the most of these engines, then the fewest others, then one of config/config.yaml."""
    usual = read_yaml(own_or_shipped(root, CONFIG)).get("studies") or []
    return min(
        _examples(root, device),
        key=lambda study: (
            len({*engines} - study.engines.keys()),
            len(study.engines.keys() - {*engines}),
            study.study not in usual,
        ),
    )


def first_model(given: str, revision: str | None, gguf: str | None) -> dict[str, Any]:
    """The study's `model` for a path, for the GGUF file in a package `name==version` (in parts in several, with
    commas), or for `owner/name` of the hub.

    `revision` is a commit of the hub, or the user's own name for the content of a path; `gguf` is a file of the
    repository. Without a revision the hub is asked for its newest commit; `ConfigError` if it does not answer.
    """
    path = Path(given).expanduser()
    if path.exists():
        path = path.resolve()
        is_gguf = path.suffix == ".gguf" or (path.is_dir() and any(path.glob("*.gguf")))
        source = {"kind": "path", "path": str(path), "revision": revision or "1"}
        return {"id": path.stem, "format": "gguf" if is_gguf else "safetensors", "source": source}
    if "==" in given:
        return _packaged(given.replace(" ", "").split(","))
    if given.count("/") != 1 or given.startswith((".", "/", "~")):
        raise ConfigError(
            f"--model {given}: no such path; a model of the hub has the form `owner/name`, a package `name==version`"
        )
    revision = revision or _newest(given)
    if gguf is None:
        return {"id": given, "revision": revision}
    return {"id": given, "format": "gguf", "source": {"kind": "hub", "id": given, "revision": revision, "file": gguf}}


def _packaged(requirements: list[str]) -> dict[str, Any]:
    try:
        source = pin_model(requirements)
    except (ServelabError, ValidationError) as error:
        raise ConfigError(f"--model {','.join(requirements)}: {' '.join(str(error).split())}") from None
    return {
        "id": Path(source.member).name.partition(".gguf")[0],
        "format": "gguf",
        "source": source.model_dump(mode="json"),
    }


def _newest(model: str) -> str:
    """The commit that the hub's main branch is at."""
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        sha = huggingface_hub.HfApi(endpoint=endpoint()).model_info(model, timeout=30).sha
    except (HTTPError, OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise ConfigError(f"--revision: give the commit of {model}; {endpoint()} could not be asked: {why}") from None
    assert sha is not None
    return sha
