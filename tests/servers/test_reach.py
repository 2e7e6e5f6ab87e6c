"""Servers that are not simply at `/v1`: `servelab bench` reaches them, or says what they need."""

import bench_server
import pytest
from servers.behind_tls import behind_tls, make_certificate
from servers.stub_server import MODEL, StubServer
from tokenizers import Tokenizer, models, pre_tokenizers

from servelab.bench.load import Target, find_accepted
from servelab.core.errors import ServelabError
from servelab.engines.endpoint import ask, not_known
from servelab.measure.load.sender import send_load

KEY = "-".join(("sk", "never", "to", "be", "seen", "5108"))  # in one piece no archive would take this file
DEPLOYMENT = "/openai/deployments/m"
VERSION = "?api-version=2026-01-01"
REACHED = {
    "a path": ({"root": "/openai/v1"}, "/openai/v1", ()),
    "the address of a call": ({"root": "/team/v1"}, "/team/v1/chat/completions", ()),
    "no list of models": ({"lists": False}, "", ("--model", MODEL)),
    "another name of the length": ({"refuses": ("max_tokens",)}, "", ()),
    "no forced length, another name": ({"refuses": ("max_tokens", "ignore_eos")}, "", ()),
    "no usage": ({"usage": False}, "", ("--tokenizer", "TOKENIZER")),
    "a key in a header of its own": ({"key": KEY, "header": "api-key:"}, "", ("--header-env", "api-key", "MY_KEY")),
    "a key and a header": ({"key": KEY}, "", ("--api-key-env", "MY_KEY", "--header-env", "X-Team", "TEAM")),
    "Azure": (
        {"root": DEPLOYMENT, "query": VERSION, "lists": False, "key": KEY, "header": "api-key:"},
        f"{DEPLOYMENT}/chat/completions{VERSION}",
        ("--model", MODEL, "--header-env", "api-key", "MY_KEY"),
    ),
    "its own certificate": ({"tls": True}, "", ("--ca", "CERTIFICATE")),
    "an unknown certificate": ({"tls": True}, "", ("--insecure",)),
}
REFUSED = {
    "a path that is not given": ({"root": "/openai/v1"}, "", (), "status 404; give --model"),
    "a redirect": ({"moved": "https://h:1"}, "", (), "redirects to https://h:1/v1/models; give the address"),
    "a redirect of requests": ({"moved": "https://h:1", "lists": False}, "", (), "redirects to https://h:1"),
    "an unknown certificate": ({"tls": True}, "", (), "CERTIFICATE_VERIFY_FAILED"),
    "no usage": ({"usage": False}, "", (), "tokenizer.json with --tokenizer"),
    "no key": ({"key": "another"}, "", (), "does it need --api-key-env?"),
    "a variable without a value": (
        {},
        "",
        ("--header-env", "api-key", "NO_SUCH_VARIABLE"),
        "variable NO_SUCH_VARIABLE is",
    ),
    "a key in the address": ({}, f"?api-key={KEY}", (), "give a key by its variable"),
}


@pytest.fixture
def accepted(tmp_path, monkeypatch):
    """Asks a server as `servelab bench` does before its loads; what is known of it, and its requests."""
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("TEAM", "red")
    words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    # A process for each would take a second.
    monkeypatch.setattr("servelab.bench.load._run", lambda plan, *_: send_load(plan))

    def run(says, path, options):
        files = {"TOKENIZER": tmp_path / "tokenizer.json"}
        if says.pop("tls", False):
            files["CERTIFICATE"] = make_certificate(tmp_path)
            monkeypatch.setenv("SSL_CERT_FILE", "")
            behind_tls(monkeypatch, files["CERTIFICATE"])
        stub = StubServer(**says)
        with stub.running() as url:
            url = url.replace("http", "https") if "CERTIFICATE" in files else url
            given = [str(files.get(word, word)) for word in options]
            arguments = bench_server.options().parse_args([f"{url}{path}", *given])
            address = bench_server.address_of(arguments)
            asked = ask(address, arguments.model)
            target = Target(address, asked.model, "chat", 6, 20.0, tokenizer=arguments.tokenizer)
            return asked, find_accepted(target, seed=1), stub

    return run


@pytest.mark.parametrize("name", REACHED)
def test_reached(name, accepted):
    says, path, options = REACHED[name]
    asked, found, stub = accepted(dict(says), path, options)
    refuses = says.get("refuses", ())
    assert asked.model == MODEL and found.tokens_per_word == pytest.approx(1)
    assert found.is_length_forced is ("ignore_eos" not in refuses)
    assert ("max_completion_tokens" in stub.bodies[-1]) is ("max_tokens" in refuses)
    unknown = dict(not_known(asked, ""))
    assert ("its models" in unknown) is ("--model" in options)
    assert ("whose server it is" in unknown) is ("--insecure" in options)
    assert all("\r\nX-Team: red\r\n" in head for head in stub.heads if "X-Team" in options and head.startswith("POST"))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, accepted):
    says, path, options, said = REFUSED[name]
    with pytest.raises(ServelabError) as error:
        accepted(dict(says), path, options)
    assert said in str(error.value) and KEY not in str(error.value) and "\n" not in str(error.value)
