"""The Hugging Face hub, or its mirror named in HF_ENDPOINT; HF_TOKEN gives access to gated repositories."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import huggingface_hub
from pydantic import Field

from servelab.assets.gguf import part_names
from servelab.assets.pinned_file import Content, ContentError, holds
from servelab.assets.sources import FILE_SOURCES, MODEL_PROBES, MODEL_SOURCES, FileSource, Probe
from servelab.core.credentials import without_credentials
from servelab.core.errors import Outage, ServelabError
from servelab.core.registry import nearest
from servelab.core.run_spec import Commit, HubSource

DEFAULT_ENDPOINT = "https://huggingface.co"
NOT_SERVED = ["*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "*.tflite", "onnx/*", "original/*"]
"""Copies of the weights in other formats: engines read the safetensors."""


class HubFile(FileSource):
    """A file of a dataset repository at a pinned revision."""

    kind: Literal["hub"] = "hub"
    id: str = Field(description="Dataset repository, as `owner/name`.")
    revision: Commit = Field(description="Commit hash; a branch or tag name is refused.")
    path: str = Field(description="The file's path inside the repository.")

    def fetch(self, content: Content, destination: Path) -> None:
        folder = destination.with_name(f".{destination.name}.hub")  # an interrupted download goes on there
        with _from_hub(f"dataset {self.id} at {self.revision[:12]}", folder):
            file = huggingface_hub.hf_hub_download(
                self.id,
                self.path,
                repo_type="dataset",
                revision=self.revision,
                local_dir=folder,
                endpoint=endpoint(),
            )
        is_right = holds(Path(file), content)
        if is_right:
            Path(file).replace(destination)
        shutil.rmtree(folder)
        if not is_right:
            raise ContentError(f"{destination}: corrupt or another version: its sha256 is not the pinned one")

    def describe(self) -> str:
        """The public address, even if a mirror served the file."""
        return f"{DEFAULT_ENDPOINT}/datasets/{self.id}/resolve/{self.revision}/{self.path}"


def endpoint() -> str:
    """The hub's address."""
    return os.environ.get("HF_ENDPOINT", DEFAULT_ENDPOINT).rstrip("/")


def fetch_model(source: HubSource, folder: Path) -> Path:
    """A snapshot of the repository without weights in other formats, or its GGUF file; hashes are checked."""
    api = huggingface_hub.HfApi(endpoint=endpoint())
    snapshot = folder / "snapshot"
    with _from_hub(f"model {source.id} at {source.revision[:12]}", snapshot):
        api.snapshot_download(
            source.id,
            revision=source.revision,
            local_dir=snapshot,
            allow_patterns=None if source.file is None else part_names(source.file),
            ignore_patterns=None if source.file or source.whole else NOT_SERVED,
        )
        info = api.model_info(source.id, revision=source.revision, files_metadata=True)
    for sibling in info.siblings or []:
        file = snapshot / sibling.rfilename
        if sibling.lfs is None or not file.exists():
            continue
        if not holds(file, Content(size_bytes=sibling.lfs.size, sha256=sibling.lfs.sha256)):
            file.unlink()
            raise ContentError(f"{file}: corrupt: its sha256 is not the hub's; the file was removed, run again")
    if source.file is None:
        return snapshot
    for name in part_names(source.file):
        if not (snapshot / name).is_file():
            there = [sibling.rfilename for sibling in info.siblings or []]
            raise ServelabError(f"model {source.id} at {source.revision[:12]} has no `{name}`{nearest(name, there)}")
    return snapshot / source.file


def probe_model(source: HubSource, timeout_s: float) -> Probe:
    """Asks the hub for the revision, the sizes of its files, and its config.json."""
    from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is not in its list of exports
        GatedRepoError,
        HTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    api = huggingface_hub.HfApi(endpoint=endpoint())
    name = f"{source.id} at {source.revision[:12]}"
    try:
        info = api.model_info(source.id, revision=source.revision, files_metadata=True, timeout=timeout_s)
        files = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
        if source.file is not None:
            return _probe_file(source, source.file, name, files)
        config = _read_config(api, source, timeout_s) if "config.json" in files else None
    except GatedRepoError:
        action = f"accept its terms at {DEFAULT_ENDPOINT}/{source.id} and set HF_TOKEN to a token of that account"
        return Probe(False, f"{name}: gated, and this account has no access", action)
    except RevisionNotFoundError:
        return Probe(
            False, f"{source.id}: {_shown_endpoint()} has no revision {source.revision}", "name another revision"
        )
    except RepositoryNotFoundError:
        action = "check `id`; for a private repository set HF_TOKEN"
        return Probe(
            False, f"{source.id}: {_shown_endpoint()} has no such repository, or hides it from this account", action
        )
    except (HTTPError, OSError, ValueError) as error:
        action = "run this on a machine that reaches the hub, or name a folder with `source: {kind: path, …}`"
        return Probe(None, f"{name}: no answer from {_shown_endpoint()}: {_reason(error)}", action)
    return Probe(True, f"{name}: {_shown_endpoint()} has it", files=files, config=config)


def _probe_file(source: HubSource, file: str, name: str, files: Mapping[str, int]) -> Probe:
    for part in part_names(file):
        if part not in files:
            saw = f"{name}: {_shown_endpoint()} has no `{part}`{nearest(part, list(files))}"
            return Probe(False, saw, "name a `.gguf` file of the repository")
    return Probe(True, f"{name}: {_shown_endpoint()} has it", files={part: files[part] for part in part_names(file)})


def _read_config(api: huggingface_hub.HfApi, source: HubSource, timeout_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = api.hf_hub_download(
            source.id, "config.json", revision=source.revision, local_dir=folder, etag_timeout=timeout_s
        )
        config: dict[str, Any] = json.loads(Path(file).read_bytes())
        return config


def _shown_endpoint() -> str:
    """The hub's address for messages, without a password that a mirror's address may hold."""
    return without_credentials(endpoint())


def _reason(error: Exception) -> str:
    """The first line of an error's message, or its type."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return without_credentials(lines[0]) if lines else type(error).__name__


@contextmanager
def _from_hub(name: str, folder: Path) -> Iterator[None]:
    """Turns errors of a download into a folder into `Outage` of the disk and `ServelabError` of the hub."""
    # HTTPError belongs to the HTTP library that the hub's library uses, which differs between its releases
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        yield
    except (OSError, HTTPError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
            raise Outage(f"cannot write {folder}: {error.strerror}") from None
        raise ServelabError(f"{name} from {_shown_endpoint()}: {_reason(error)}") from None


FILE_SOURCES.register("hub", HubFile)
MODEL_SOURCES.register("hub", fetch_model)
MODEL_PROBES.register("hub", probe_model)
