"""The `model` of a study, from how a user names one: a path on this machine, a package, or a repository of the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
from pydantic import ValidationError

from servelab.assets.sources.hub import endpoint
from servelab.assets.sources.package import pin_model
from servelab.core.errors import ConfigError, ServelabError


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
