"""Words from outside do not act here: neither on a shell, a terminal, a page nor another server."""

import copy
import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import pytest
import yaml
from made_study import ROOT, demo_study
from servelab_command import run_servelab
from test_forms import form

from servelab.core import processes, result_lock
from servelab.core.errors import ConfigError, Outage
from servelab.core.files import write_text
from servelab.core.run_spec import RunSpec
from servelab.engines.adapters import ENGINES
from servelab.report.page import Cell, Page, Section, Table, fenced, write_page, write_tables
from servelab.search.project import load_project
from servelab.study.configuration import Configuration, apply
from servelab.study.study import Overrides, load_study
from servelab.workflow.studies import read_configuration

CANARY = "canary-Sings-7713-" + "Xy9" * 4
SERVER = {"url": "https://a.example/v1", "api-key-env": "MY_KEY", "header-env": '{"api-key": "MY_KEY"}'}


def study_file(tmp_path, *path, value):
    """The demo study with one value changed."""
    study = place = demo_study()
    for key in path[:-1]:
        place = place[key] if isinstance(key, int) else place.setdefault(key, {})
    place[path[-1]] = value
    file = tmp_path / "cpu-smollm2.yaml"
    file.write_text(yaml.safe_dump(study | {"study": file.stem}))
    return file


def server(**arguments):
    kinds = {"options": {}, "environment_variables": {}, "model": "base", "accelerators": 1}
    return Configuration(engine="endpoint", arguments=SERVER | arguments, **kinds)


@pytest.mark.parametrize(
    ("given", "keeps"),
    [
        ({"url": "http://10.0.0.7"}, False),
        ({"url": "https://a.example:8443"}, False),
        ({"url": "http://a.example"}, False),
        ({"url": "https://A.example:443"}, True),
        ({"state": "new release"}, True),
        ({"url": "https://b.example", "api-key-env": "MY_KEY", "header-env": "{}"}, True),
        ({"url": "https://[b"}, False),
    ],
)
def test_a_key_belongs_to_one_origin(given, keeps):
    arguments = apply(server(), Overrides(arguments=given)).arguments
    assert ("api-key-env" in arguments) is ("header-env" in arguments) is keeps


def test_a_key_is_sent_in_clear_text_only_where_that_is_said():
    endpoint, away = ENGINES.get("endpoint"), {"url": "http://10.0.0.7:8000", "api-key-env": "MY_KEY"}
    with pytest.raises(ConfigError, match=r"clear text.*key-over-http"):
        endpoint.address(away)
    assert endpoint.address(away | {"key-over-http": True}).key_variable == "MY_KEY"
    assert endpoint.address({"url": "http://127.0.0.1:8000", "api-key-env": "MY_KEY"}).port == 8000


@pytest.mark.parametrize("name", ["VLLM_X$(touch x)", "A B", "A;B", "1A", "A=B", "Ä", ""])
def test_a_variable_has_the_name_of_one(name, tmp_path):
    with pytest.raises(ConfigError, match="the name of a variable"):
        load_study(study_file(tmp_path, "baseline", "environment_variables", value={name: "1"}))
    with pytest.raises(ValueError, match="environment_variables"):
        RunSpec.model_validate({"environment_variables": {name: "1"}})
    with pytest.raises(ValueError, match="environment_variables"):
        Configuration.model_validate(server().model_dump() | {"environment_variables": {name: "1"}})


LINES = [("title",), ("engines", "llama.cpp", "version"), ("hardware", "accelerator"), ("stages", 0, "title")]


@pytest.mark.parametrize("path", [*LINES, ("stages", 0, "candidates", 0, "label")], ids=str)
def test_what_is_printed_in_one_line_has_one(path, tmp_path):
    with pytest.raises(ConfigError, match="takes one line"):
        load_study(study_file(tmp_path, *path, value="1.0\ntouch x"))


def test_a_line_break_is_no_command_of_a_printed_script():
    script = form("slurm", version="1.0\ntouch x")
    assert "has vllm 1.0 touch x." in script and "\ntouch" not in script


def test_backticks_do_not_leave_their_fence():
    lines = fenced("serve '```\n# x\n````'").splitlines()
    assert (lines[0], lines[-1]) == ("`````bash", "`````")


ACTS = "\x1b]52;c;ZQ==\x07 \x1b[2J \x9b2J \r \u202e \u2066 \u2028"


def test_nothing_from_outside_acts_on_a_terminal_or_in_a_page(tmp_path):
    code = f"""
import sys
from servelab.core.cli import run
from servelab.core.errors import ServelabError
def main():
    print({ACTS!r})
    print({ACTS!r}, file=sys.stderr)
    raise ServelabError({ACTS!r})
run(main)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    for text in (done.stdout.decode(), done.stderr.decode()):
        assert text and all(each.isprintable() or each == "\n" for each in text)
        assert json.loads(f'"{text.splitlines()[0]}"') == ACTS  # JSON stays the same JSON
    table = Table([ACTS], [[Cell(ACTS, note=ACTS)]])
    write_page(Page(ACTS, ACTS, [Section(ACTS, table)]), tmp_path / "a.html", tmp_path / "a.md")
    for page in (tmp_path / "a.html", tmp_path / "a.md"):
        assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e", "\u2066", "\u2028"} & {*page.read_text()}


class Hostile(BaseHTTPRequestHandler):
    """Names a model, and answers all else with an error, in words that act on a terminal."""

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Server", "s\x1b[2J")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, json.dumps({"data": [{"id": f"m{ACTS}"}], "version": ACTS}).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(
            500, json.dumps({"error": {"message": f"{ACTS} {self.headers['Authorization']}"}}).encode() + b"\x1b[2J"
        )


def test_a_server_does_not_write_to_the_users_terminal_and_a_key_is_nowhere(tmp_path, monkeypatch):
    for name in ("MY_SERVER", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "https_proxy"):
        monkeypatch.setenv(name, f"{CANARY}{name}")
    words = ["--concurrency", "1", "--visits", "1", "--input-tokens", "8", "--output-tokens", "2", "--warmup", "0"]
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        done = run_servelab("bench", url, "--output", tmp_path / "out", *words, "--api-key-env", "MY_SERVER")
        server.shutdown()
    printed = done.stdout + done.stderr
    assert "\\u001b" in printed and all(each.isprintable() or each == "\n" for each in printed)
    left = [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in (printed, *left) if CANARY in text]


SECRETS = {
    "a variable": ("environment_variables", {"DB_PASS": CANARY}),
    "a weak password": ("environment_variables", {"DB_PASS": "letmein"}),
    "the second of two": ("environment_variables", {"MY_TOKEN_2": "letmein"}),
    "a key in JSON": ("environment_variables", {"CLOUD_CREDENTIALS_JSON": CANARY}),
    "a header of a gateway": ("arguments", {"--header": f"Ocp-Apim-Subscription-Key: {CANARY}"}),
    "a signed token": ("environment_variables", {"MY_JWT": CANARY}),
    "a header": ("arguments", {"--header": f"Authorization: Bearer {CANARY}"}),
    "JSON": ("arguments", {"--hf-overrides": json.dumps({"a": [{"token": CANARY}]})}),
    "weak JSON": ("arguments", {"--hf-overrides": '{"token": "letmein"}'}),
    "request fields": ("arguments", {"request-fields": json.dumps({"api_key": CANARY})}),
    "a URL": ("arguments", {"--metrics": f"https://u:{CANARY}@h.example"}),
    "a label": ("label", f"with --api-key {CANARY}"),
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_study_with_a_credential_is_refused_before_anything_starts(kind, tmp_path):
    """By the rules that redact, wherever it is; the error does not show it."""
    key, value = SECRETS[kind]
    for path in (("baseline", key), ("stages", 0, "candidates", 0, key)):
        with pytest.raises(ConfigError, match=r"credential") as raised:
            load_project(study_file(tmp_path, *path, value=value), ROOT)
        assert key in str(raised.value) and CANARY not in str(raised.value) and "letmein" not in str(raised.value)


@pytest.mark.parametrize(
    "path",
    [
        ("title",),
        ("hardware", "accelerator"),
        ("hardware", "found_as", 0),
        ("model", "source", "member"),
        ("stages", 0, "title"),
        ("workloads", 0),
    ],
    ids=str,
)
def test_no_text_of_a_study_may_be_a_credential(path, tmp_path):
    value = f"key {'sk-' + CANARY}"
    study = copy.deepcopy(demo_study())
    study["hardware"].setdefault("found_as", ["x"])
    place = study
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file = tmp_path / f"{study['study']}.yaml"
    file.write_text(yaml.safe_dump(study))
    with pytest.raises(ConfigError, match="credential") as raised:
        load_project(file, ROOT)
    assert CANARY not in str(raised.value)
    with pytest.raises(ConfigError, match=r"config\.yaml or --config: runs_from\.0: a credential"):
        read_configuration({"studies": ["a"], "runs_from": [f"s3://u:{CANARY}@h.example/x"]})


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x07", "\x9b", "\u202e", "\r"], ids=ascii)
def test_a_control_character_is_refused_when_the_study_is_read(character, tmp_path):
    with pytest.raises(ConfigError, match=r"cpu-smollm2\.yaml:\d+: .*a character that neither commands nor pages"):
        load_study(study_file(tmp_path, "title", value=f"a{character}b"))


def test_planted_links_are_not_followed(tmp_path, monkeypatch):
    target = tmp_path / "precious"
    target.write_text("kept")
    shared = tmp_path / "results"
    shared.mkdir()
    (shared / ".run.lock").symlink_to(target)
    with pytest.raises(Outage, match="cannot be claimed"), result_lock.claim(shared / "run"):
        pass
    assert not result_lock.is_claimed(shared / "run")
    (shared / "server.log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        processes.Supervised(["true"], environment=dict(os.environ), log=shared / "server.log")
    names = (f".a.json.{os.uname().nodename}.{os.getpid()}.tmp", "a.json")
    for name in names:
        (shared / name).symlink_to(target)
    write_text(shared / "a.json", "{}")
    assert target.read_text() == "kept" and not (shared / "a.json").is_symlink()


def test_two_users_of_one_folder_may_take_each_others_locks(tmp_path):
    """As docs/studies.md says: a common group, and `chmod g+ws`."""
    shared = tmp_path / "results"
    shared.mkdir()
    shared.chmod(0o2770)
    before = os.umask(0o022)
    try:
        with result_lock.claim(shared / "run"):
            assert (shared / ".run.lock").stat().st_mode & 0o777 == 0o660
    finally:
        os.umask(before)


FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-1+2",
    "-2+3+cmd|' /C x'!A0",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    "--ctx 8",
    "=1\r=1",
]
NUMBERS = ["-3.2", "-3.2 %", "+12 %", "-1,234.5", "-1e-9", "-", "–", "", "a=1", "8 @ 2", "1-2"]


def test_a_table_as_csv_has_no_formulas(tmp_path):
    """A spreadsheet would run a label that begins with `=` or `@`; negative numbers stay numbers."""
    rows = pd.DataFrame({"text": FORMULAS + NUMBERS, "=n": -1.5, "list": [["=1", "b"]] * len(FORMULAS + NUMBERS)})
    write_tables(tmp_path, {"t": rows})
    made = pd.read_csv(tmp_path / "t.csv", dtype={"text": str}, keep_default_na=False)
    assert made["text"].tolist() == [f"'{text}".replace("\r", " ") for text in FORMULAS] + NUMBERS
    assert made["'=n"].tolist() == [-1.5] * len(rows) and set(made["list"]) == {"'=1; b"}
    assert pd.read_parquet(tmp_path / "t.parquet")["text"].tolist() == FORMULAS + NUMBERS
