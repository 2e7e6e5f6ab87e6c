"""Reads what a first study needs from the machine, from the checkout's studies on such hardware, and from the hub."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from packaging.version import Version

from servelab.assets.sources.hub import endpoint
from servelab.cli.checkout import CONFIG, STUDIES
from servelab.core.errors import ConfigError, Outage
from servelab.core.files import CHECKOUT, own_or_shipped, write_text
from servelab.core.yaml_file import read_yaml
from servelab.machine.devices import DEVICES
from servelab.search.project import load_project
from servelab.study.study import Study, load_study

_SCHEMA = "schema/study.schema.json"


@dataclass(frozen=True)
class AskedHardware:
    """The hardware of a study."""

    device: str
    """Kind of device, a name of `DEVICES`."""
    accelerator: str
    per_node: int


def asked_hardware(name: str | None, device: str | None, per_node: int | None) -> AskedHardware:
    """The accelerators that are named, or those of this machine, or else its CPU."""
    if name:
        return AskedHardware(device or "nvidia", name, per_node or 1)
    if device:
        raise ConfigError("--device: give --hardware too, the name of the accelerator")
    for kind in sorted(DEVICES, key=lambda each: not each.gres):  # those that batch systems allocate come first
        with suppress(Outage):
            if devices := kind.find():
                return AskedHardware(kind.name, devices[0].name if kind.gres else kind.name, per_node or len(devices))
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


def write_study(name: str, text: str, root: Path, added: Mapping[str, str] | None = None) -> Path:
    """Writes a study and returns its path; `{schema}` in it becomes the schema's place.

    `added` is text for files of the configuration, by name. `ConfigError`, and no change, if anything is wrong.
    A folder without config/config.yaml becomes a folder of studies: the file is written too, and names this study.
    """
    file = root / STUDIES / f"{name}.yaml"
    if file.exists():
        raise ConfigError(f"{file} exists; give the study another name")
    own = (root / "config" / _SCHEMA).exists()
    text = text.replace("{schema}", f"../{_SCHEMA}" if own else str(CHECKOUT / "config" / _SCHEMA))
    before = {each: (root / each).read_bytes() for each in added or {} if (root / each).exists()}
    for each, more in (added or {}).items():
        write_text(root / each, own_or_shipped(root, each).read_text(encoding="utf-8") + more)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / file.name
        draft.write_text(text, encoding="utf-8")
        try:
            load_project(draft, root)
        except ConfigError as error:
            for each in added or {}:
                (root / each).unlink()
                if each in before:
                    (root / each).write_bytes(before[each])
            raise ConfigError(str(error).replace(str(draft), str(file))) from None
    write_text(file, text)
    if not (root / CONFIG).exists():
        write_text(root / CONFIG, f"studies: [{name}]\n")
    return file


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


def first_model(given: str, revision: str | None) -> dict[str, Any]:
    """The study's `model` for a path, or for `owner/name` of the hub.

    `revision` is a commit of the hub, or the user's own name for the content of a path. Without one the hub is asked
    for its newest commit; `ConfigError` if it does not answer.
    """
    path = Path(given).expanduser()
    if path.exists():
        path = path.resolve()
        is_gguf = path.suffix == ".gguf" or (path.is_dir() and any(path.glob("*.gguf")))
        source = {"kind": "path", "path": str(path), "revision": revision or "1"}
        return {"id": path.stem, "format": "gguf" if is_gguf else "safetensors", "source": source}
    if given.count("/") != 1 or given.startswith((".", "/", "~")):
        raise ConfigError(f"{given}: no such path; a model of the hub has the form `owner/name`")
    return {"id": given, "revision": revision or _newest(given)}


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
