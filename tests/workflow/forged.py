"""Archives forged with care: every seal and the manifest agree with what was changed."""

import hashlib
import json
import zipfile
from pathlib import Path

from servelab.archive.layout import MANIFEST
from servelab.core.seal import Seal


def read_members(archive: Path) -> dict[str, bytes]:
    """Content of each member."""
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


def write_forged(path: Path, members: dict[str, bytes]) -> Path:
    """An archive of these members, with new seals of runs and a new manifest."""
    for name in [name for name in members if name.startswith("results/runs/") and name.endswith("/status.json")]:
        members[name] = _resealed(members, name)
    manifest = json.loads(members.pop(MANIFEST))
    manifest["members"] = {
        name: {"sha256": _sha256(content), "size_bytes": len(content)} for name, content in members.items()
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {**members, MANIFEST: json.dumps(manifest).encode()}.items():
            file.writestr(name, content)
    return path


def _resealed(members: dict[str, bytes], name: str) -> bytes:
    status = json.loads(members[name])
    if not status.get("seal"):
        return members[name]
    folder, files = name.removesuffix("status.json"), status["seal"]["files"]
    for file in files:
        content = members[folder + file]
        files[file] |= {"sha256": _sha256(content), "size_bytes": len(content)}
    rest = {key: value for key, value in status.items() if key != "seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    sealed = Seal(files=files, status_sha256=_sha256(text.encode()))
    return json.dumps({**status, "seal": sealed.model_dump(mode="json")}, indent=2).encode() + b"\n"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
