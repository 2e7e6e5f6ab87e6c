"""Models: GGUF files made here with the gguf library, folders, and a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer, models, pre_tokenizers

from servelab.assets import gguf
from servelab.assets.model_files import fetch_model, load_model, load_tokenizer, parse_source
from servelab.assets.pinned_file import Content, ContentError
from servelab.assets.sources import MODEL_PROBES
from servelab.assets.sources.hub import HubFile, probe_model
from servelab.core.errors import ServelabError
from servelab.core.run_spec import HubSource, PathSource

ROOT = Path(__file__).parents[2]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["1 2", "12 3", "h e", "l l", "he ll", "hell o", "Ġ hello"]
TOKENS = ["<|end|>", "<|user|>", "[pad]", *ALPHABET, *[merge.replace(" ", "") for merge in MERGES]]
TYPES = [TokenType.CONTROL, TokenType.CONTROL, TokenType.USER_DEFINED, *[TokenType.NORMAL] * (len(TOKENS) - 3)]


def write_gguf(path: Path, pre: str = "smollm", model: str = "gpt2", *, add_bos: bool = False) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_add_bos_token(add_bos)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def source(path: Path) -> PathSource:
    return PathSource(path=str(path), revision="1")


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=False).tokens


def test_special_tokens_are_parsed_and_begin_of_text_is_added_where_asked(tmp_path: Path) -> None:
    metadata = gguf.Metadata(write_gguf(tmp_path / "m.gguf", add_bos=True))
    tokenizer = gguf.build_tokenizer(metadata)
    assert pieces(tokenizer, "<|user|>hello[pad]<|end|>") == ["<|user|>", "hello", "[pad]", "<|end|>"]
    assert tokenizer.encode("hello").tokens == ["<|user|>", "hello"]
    assert tokenizer.decode(tokenizer.encode("hello[pad]<|end|>").ids) == "hello[pad]"
    config = gguf.tokenizer_config(metadata)
    assert (config["eos_token"], config["bos_token"], config["model_max_length"]) == ("<|end|>", "<|user|>", 128)
    assert config["chat_template"] == "{{ messages[0]['content'] }}"


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["\u2581", "h", "e", "l", "o", "he", "ll", "hell", "hello", "\u2581hello", "lo", "\u2581\u2581"]
"""The rarer a piece, the later, and the lower its score; `lo` is rarer than `hell`, so it is not joined first."""


def write_pieces(path: Path, *, space_first: bool = True) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *BYTES, *PIECES])
    writer.add_token_scores([*[0.0] * 259, *[-float(rank) for rank in range(len(PIECES))]])
    control = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    writer.add_token_types([*control, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(PIECES)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(space_first)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_model_json_of_a_gguf_file(tmp_path: Path) -> None:
    gguf_file = write_gguf(tmp_path / "m.gguf")
    model_json = fetch_model(source(gguf_file), tmp_path / "model")
    stored, path, tokenizer_json = load_model(model_json)
    assert (stored.format, stored.tokenizer, path) == ("gguf", "tokenizer.json", gguf_file)
    assert pieces(load_tokenizer(tokenizer_json), "hello") == ["hello"]


def test_tokenizer_counts_all_tokens_whatever_truncation_its_file_asks_for(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert len(load_tokenizer(tmp_path / "tokenizer.json").encode("a a a a a a").ids) == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda folder: write_gguf(folder / "m.gguf", pre="smolm"),
            "`smolm`; did you mean `smollm`",
        ),
        (
            lambda folder: write_gguf(folder / "m.gguf", model="t5"),
            "tokenizer model `t5` cannot be read, only `gpt2` and",
        ),
        (
            lambda folder: write_gguf(folder / "m-00002-of-00003.gguf"),
            "not the model's first part; name m-00001-of-00003",
        ),
        (lambda folder: folder / "absent.gguf", "no such file or folder"),
        (lambda folder: folder, "no `config.json`"),
        (lambda folder: Path(__file__), "not a readable GGUF file"),
        (lambda folder: Path("relative.gguf"), "is not absolute"),
    ],
)
def test_unusable_model_is_a_clear_error(tmp_path: Path, make: object, message: str) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(ServelabError, match=message):
        fetch_model(source(path), tmp_path / "model")
    assert not (tmp_path / "model" / "model.json").exists()


REVISION = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = b"weights" * 1000
HUB_FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": WEIGHTS, "pytorch_model.bin": b"no"}
GGUF_FILES = ("q4/m-00001-of-00002.gguf", "q4/m-00002-of-00002.gguf", "q8.gguf")


class Hub(BaseHTTPRequestHandler):
    """The few answers of the hub that a snapshot needs."""

    weights = WEIGHTS
    refusal: tuple[int, str] | None = None
    """Status and `X-Error-Code` of all answers."""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if self.refusal:
            self.send_response(self.refusal[0])
            self.send_header("X-Error-Code", self.refusal[1])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        tree = [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            | ({"lfs": self.lfs(data)} if name.endswith(("safetensors", "bin")) else {})
            for name, data in HUB_FILES.items()
        ]
        headers = {}
        if path.startswith("/api/models/") and "/tree/" in path:
            body = json.dumps(tree).encode()
        elif path.startswith("/api/models/"):
            siblings = [{"rfilename": f["path"], "size": f["size"], "lfs": f.get("lfs")} for f in tree]
            body = json.dumps({"id": "o/m", "sha": REVISION, "siblings": siblings}).encode()
        else:
            name = path.partition(f"/resolve/{REVISION}/")[2]
            body = self.weights if name == "model.safetensors" else HUB_FILES[name]
            headers = {"X-Repo-Commit": REVISION, "ETag": f'"{hashlib.sha1(HUB_FILES[name]).hexdigest()}"'}
        self.send_response(200)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    @staticmethod
    def lfs(data: bytes) -> dict[str, object]:
        sha256 = hashlib.sha256(data).hexdigest()
        return {"oid": sha256, "sha256": sha256, "size": len(data), "pointerSize": 1}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def download_from(hub: str, output: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/models.py"), "download_model"]
    command += [f"files={json.dumps({'output': {'model': str(output)}})}"]
    command += [f"source={json.dumps({'kind': 'hub', 'id': 'o/m', 'revision': REVISION, **more})}"]
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(output.parent / "home")}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(("more", "left"), [({}, {"pytorch_model.bin"}), ({"whole": True}, {"tokenizer.json"})])
def test_hub_snapshot_without_other_formats_unless_it_is_a_draft(hub, tmp_path, monkeypatch, more, left):
    output = tmp_path / "model" / "model.json"
    monkeypatch.delitem(HUB_FILES, "tokenizer.json" if more else "", raising=False)
    done = download_from(hub, output, **more)
    assert done.returncode == 0, done.stderr
    stored, path, _ = load_model(output)
    assert (stored.format, stored.path) == ("safetensors", "snapshot")
    assert {file.name for file in path.iterdir() if file.is_file()} == set(HUB_FILES) - left


def test_a_file_of_a_dataset_on_the_hub(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub)
    name, data = next(iter(HUB_FILES.items()))
    content = Content(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    HubFile(id="o/d", revision=REVISION, path=name).fetch(content, tmp_path / "made" / "file")
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["file"]
    assert (tmp_path / "made" / "file").read_bytes() == data
    with pytest.raises(ContentError, match="corrupt or another version"):
        other = content.model_copy(update={"sha256": "0" * 64})
        HubFile(id="o/d", revision=REVISION, path=name).fetch(other, tmp_path / "made" / "file")
    with pytest.raises(ServelabError, match="dataset o/d at"):
        HubFile(id="o/d", revision=REVISION, path="missing").fetch(content, tmp_path / "other" / "file")


def test_a_gguf_file_of_the_hub_with_its_parts(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {name: write_pieces(tmp_path / name.rpartition("/")[2]).read_bytes() for name in GGUF_FILES}
    for name, data in parts.items():
        monkeypatch.setitem(HUB_FILES, name, data)
    output = tmp_path / "model" / "model.json"
    done = download_from(hub, output, file=GGUF_FILES[0])
    assert done.returncode == 0, done.stderr
    stored, path, tokenizer = load_model(output)
    assert (stored.format, stored.path) == ("gguf", f"snapshot/{GGUF_FILES[0]}")
    assert pieces(load_tokenizer(tokenizer), "hello") == ["\u2581hello"]
    assert {file.name for file in path.parent.iterdir()} == {name.rpartition("/")[2] for name in GGUF_FILES[:2]}
    monkeypatch.setenv("HF_ENDPOINT", hub)
    wanted = HubSource(id="o/m", revision=REVISION, file=GGUF_FILES[0])
    assert probe_model(wanted, 60).files == {name: len(parts[name]) for name in GGUF_FILES[:2]}
    for file, said in (("q9.gguf", "did you mean `q8.gguf`"), (GGUF_FILES[1], "name q4/m-00001-of-00002.gguf")):
        done = download_from(hub, tmp_path / "other" / "model.json", file=file)
        assert done.returncode == 1
        assert said in done.stderr
    absent = probe_model(HubSource(id="o/m", revision=REVISION, file="q9.gguf"), 60)
    assert (absent.there, "has no `q9.gguf`" in absent.saw) == (False, True)
    for file in ("../m.gguf", "a/../../m.gguf", "/m.gguf", "m.safetensors"):
        with pytest.raises(ServelabError, match=r"hub.file"):
            parse_source(json.dumps({"kind": "hub", "id": "a/b", "revision": REVISION, "file": file}))


def probe(source):
    return MODEL_PROBES.get(source.kind)(source, 5.0)


@pytest.mark.parametrize(
    ("refusal", "there", "saw", "action"),
    [
        ((404, "RevisionNotFound"), False, f"has no revision {REVISION}", "name another revision"),
        ((403, "GatedRepo"), False, "gated, and this account has no access", "accept its terms"),
        ((503, ""), None, "no answer from", "run this on a machine that reaches the hub"),
    ],
)
def test_hub_refuses(hub, monkeypatch, refusal, there, saw, action):
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setattr(Hub, "refusal", refusal)
    answer = probe(HubSource(id="o/m", revision=REVISION))
    assert answer.there is there
    assert saw in answer.saw
    assert action in answer.action
