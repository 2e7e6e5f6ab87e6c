"""The digest of a tag, asked of registries on the loopback; and the file that pins it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from servelab.core.errors import ServelabError
from servelab.core.yaml_file import read_config
from servelab.engines.locking import find_digest, parse_reference
from servelab.engines.runtimes.containers import ImageDescription
from servelab.search.project import load_project

ROOT = Path(__file__).parents[2]
INDEX = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {"digest": "sha256:" + "1" * 64, "platform": {"os": "linux", "architecture": "amd64"}},
            {"digest": "sha256:" + "2" * 64, "platform": {"os": "linux", "architecture": "arm64"}},
            {"digest": "sha256:" + "3" * 64, "platform": {"os": "unknown", "architecture": "unknown"}},
        ],
    }
).encode()
DIGEST = f"sha256:{hashlib.sha256(INDEX).hexdigest()}"


@contextmanager
def registry(content: bytes = INDEX, *, stated: str | None = None, wants_token: bool = False, realm: str | None = None):
    """While it runs: its address, and the paths that it was asked for."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            if path == "/token":
                return self.send(200, json.dumps({"token": f"for {query['scope'][0]} of {query['service'][0]}"}))
            name = path.removeprefix("/v2/").partition("/manifests/")
            expected = f"Bearer for repository:{name[0]}:pull of here"
            if wants_token and self.headers.get("Authorization") != expected:
                where = realm or f"http://127.0.0.1:{server.server_address[1]}/token"
                return self.send(401, "{}", {"WWW-Authenticate": f'Bearer realm="{where}",service="here"'})
            if name[2] != "v1" or "oci.image.index" not in self.headers["Accept"]:
                return self.send(404, "{}")
            return self.send(200, content, {"Docker-Content-Digest": stated or DIGEST})

        def send(self, status: int, body: str | bytes, headers: dict[str, str] | None = None) -> None:
            body = body if isinstance(body, bytes) else body.encode()
            self.send_response(status)
            for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"localhost:{server.server_address[1]}", asked
        server.shutdown()


@pytest.mark.parametrize("wants_token", [False, True])
def test_a_tag_gives_the_digest_of_what_the_registry_sends(wants_token):
    with registry(wants_token=wants_token) as (address, asked):
        found = find_digest(parse_reference(f"{address}/team/engine:v1"))
    assert found.digest == DIGEST
    assert found.platforms == ("linux/amd64", "linux/arm64")
    assert len(asked) == (3 if wants_token else 1)


REFUSED = {
    "no such tag": ("engine:v2", {}, "no such image or tag"),
    "other platform": ("engine:v1", {}, "not for linux/ppc64le"),
    "wrong digest": ("engine:v1", {"stated": "sha256:" + "0" * 64}, "the registry says sha256:0000"),
    "no manifest": ("engine:v1", {"content": b"<html>"}, ""),
    "private": ("engine:v1", {"wants_token": True, "realm": "http://elsewhere.example/token"}, "without an account"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_pinned_is_one_clear_error(case):
    tag, settings, message = REFUSED[case]
    if case == "no manifest":
        settings = {**settings, "stated": f"sha256:{hashlib.sha256(b'<html>').hexdigest()}"}
        message = "no manifest"
    with registry(**settings) as (address, _), pytest.raises(ServelabError) as error:
        find_digest(parse_reference(f"{address}/{tag}"), "linux/ppc64le" if "platform" in case else "linux/amd64")
    assert message in str(error.value)


def test_the_command_writes_the_file_and_keeps_what_a_user_added(tmp_path):
    file = tmp_path / "engine.image.yaml"

    def pin(address: str, version: str) -> str:
        script = [sys.executable, ROOT / "scripts/pin_image.py", f"{address}/team/engine:v1"]
        command = [*script, "--version", version, "--output", file]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with registry() as (address, _):
        assert f"lock: {file}" in pin(address, "1.0")
        assert read_config(file, ImageDescription).image == f"{address}/team/engine@{DIGEST}"
        file.write_text(file.read_text().replace(DIGEST, "sha256:" + "a" * 64) + "# needed here\nflags: [--ipc=host]\n")
        assert f"named {address}/team/engine@sha256:aaaa" in pin(address, "1.10")
    found = read_config(file, ImageDescription)
    assert (found.image, found.version, found.flags) == (f"{address}/team/engine@{DIGEST}", "1.10", ["--ipc=host"])
    text = file.read_text()
    assert text.count("# Pinned by") == text.count("image:") == 1 and "# needed here" in text
    assert "it holds linux/amd64, linux/arm64" in text


@pytest.mark.parametrize("file", sorted((ROOT / "envs").glob("*.image.yaml")), ids=lambda file: file.name)
def test_an_image_that_is_shipped_is_by_digest_and_a_study_can_name_it(file, tmp_path):
    """The file has the name that `pin_image.py` gives it, so that asking the registry corrects it."""
    found = read_config(file, ImageDescription)
    name = parse_reference(found.image.partition("@sha256:")[0] + ":tag").name
    assert file.name == f"{name}-{found.version}.image.yaml"
    engine = {"vllm-openai": "vllm", "tensorrt-llm-release": "tensorrt-llm"}.get(name, name)
    study = yaml.safe_load((ROOT / "config/studies/vllm-h100-node.yaml").read_text())
    study["objective"]["on"] = study["objective"].pop(True)  # what YAML makes of `on`
    study["engines"] = {engine: {"version": found.version, "runtime": "docker", "lock": f"envs/{file.name}"}}
    study |= {"study": "mine", "baseline": {"engine": engine}, "stages": study["stages"][-1:]}
    study["stages"][0]["candidates"] = [{"options": {"max_num_seqs": 64}}]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(study))
    assert load_project(tmp_path / "mine.yaml", ROOT).study.engines[engine].runtime == "docker"
