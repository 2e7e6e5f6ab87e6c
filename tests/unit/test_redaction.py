"""What opens something, or says who measured where, is planted wherever it may stand; what only looks like it stays."""

import json
import subprocess
from pathlib import Path

import pytest
from planted import (
    DOMAIN,
    ENVIRONMENT,
    HOME,
    HOST,
    HUB,
    ORDINARY,
    PASSWORD,
    PROJECT,
    PROXY_HOST,
    TEXTS,
    USER,
)

from servelab.archive.redaction import Redactor
from servelab.core.errors import ServelabError

ROOT = Path(__file__).parents[2]


def redactor(**changes):
    given = {
        "project": Path(PROJECT),
        "environment": ENVIRONMENT,
        "homes": [HOME],
        "users": [USER],
        "hosts": [f"{HOST}.{DOMAIN}", "nid004711"],
        "addresses": ["10.1.2.3", "fe80::1:2ff:fe03:405"],
    }
    return Redactor(**given | changes)


def neutral():
    """Where nothing is known that could be planted."""
    return redactor(
        project=Path("/srv") / "elsewhere", environment={}, homes=[], users=["root"], hosts=["localhost"], addresses=[]
    )


@pytest.mark.parametrize("place", TEXTS)
def test_text(place):
    given, wanted = TEXTS[place]
    made = redactor().text(given)
    assert made == wanted
    assert redactor().text(made) == made


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text):
    assert redactor().text(text) == text


PROMPT = "max@test: /scratch/max/x, user=max host: test"
MADE_PROMPT = "redacted-user@redacted-host: /scratch/redacted-user/x, user=redacted-user host: redacted-host"


@pytest.mark.parametrize(
    ("user", "host", "given", "wanted"),
    [
        ("max", "test", "max_num_seqs, --max-model-len, a test, max 12 ms", None),
        ("server", "worker", "server: started; /usr/server/x; worker 3, {'server': 1}", None),
        ("1000", "42", "1000 requests in 42 s; user=2000", None),
        ("max", "test", PROMPT, MADE_PROMPT),
        (
            "al",
            "n1",
            "/data/al/x al@n1 http://n1:80/ all n12",
            "/data/redacted-user/x redacted-user@redacted-host http://redacted-host:80/ all n12",
        ),
    ],
)
def test_a_name_that_is_a_word_goes_only_where_a_name_stands(user, host, given, wanted):
    made = redactor(environment={}, homes=[], users=[user], hosts=[host]).text(given)
    assert made == (given if wanted is None else wanted)


def test_json_changes_in_values_only():
    value = {
        "command": ["python", f"{PROJECT}/a.py", "--api-key", "pw", "--model", f"{HOME}/m"],
        "environment_variables": {"API_KEY": "pw", "OMP_NUM_THREADS": "8", "VLLM_TOKEN": "true"},
        "placement": {"batch": {"system": "slurm", "job_id": "17", "node": "n5"}},
        "user": "hare",
        USER: f"{USER}@{HOST}",
        "password": "short",
        "input_tokens": 12,
        "eos_token": "<|im_end|>",
        "value": 42.5,
        "nothing": None,
    }
    made = redactor().json(value)
    model = ["--model", "/redacted-home/m"]
    assert made == {
        "command": ["python", "/redacted-project/a.py", "--api-key", "redacted-secret", *model],
        "environment_variables": {"API_KEY": "redacted-secret", "OMP_NUM_THREADS": "8", "VLLM_TOKEN": "true"},
        "placement": {"batch": {"system": "slurm", "job_id": "17", "node": "redacted-host"}},
        "user": "redacted-user",
        "redacted-user": "redacted-user@redacted-host",
        "password": "redacted-secret",
        "input_tokens": 12,
        "eos_token": "<|im_end|>",
        "value": 42.5,
        "nothing": None,
    }
    assert redactor().json(made) == made


@pytest.mark.parametrize(
    "name",
    [
        "results/runs/r/spec.json",
        "workflow/config/recorded/s/logs/a.json",
        "workflow/scripts/servelab/a.json",
    ],
)
@pytest.mark.parametrize("secret", [HUB, PASSWORD, f"{HOME}/m", f"http://{PROXY_HOST}:3128"])
def test_what_is_hashed_is_refused_and_not_changed(name, secret, tmp_path):
    source = tmp_path / "file.json"
    source.write_text(json.dumps({"outer": {"inner": [1, secret]}}))
    with pytest.raises(ServelabError, match=r"outer\.inner\.1: has a credential") as raised:
        redactor().member(name, source, tmp_path / "scratch")
    assert str(raised.value).startswith(f"{source}: ")
    assert secret not in str(raised.value)


def test_this_machine_is_known(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/carpenter")
    monkeypatch.setenv("USER", "walruscarpenter")
    monkeypatch.setenv("HOSTNAME", "oysterbed9")
    monkeypatch.setenv("SOME_TOKEN", "cabbages-and-kings")
    monkeypatch.setenv("http_proxy", "http://10.9.8.7:3128")
    made = Redactor.of_this_machine(tmp_path, hosts=["shore17"]).text(
        f"/home/carpenter/x walruscarpenter oysterbed9 shore17 cabbages-and-kings 10.9.8.7:3128 {tmp_path}/results"
    )
    wanted = ["home/x redacted-user", "host", "host", "secret", "proxy /redacted-project/results"]
    assert made == "/redacted-" + " redacted-".join(wanted)


@pytest.mark.slow
def test_the_workflow_itself_holds_no_secret(tmp_path):
    """Every tracked file can be archived as it is."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            assert neutral().member(f"workflow/{name}", ROOT / name, tmp_path / "scratch") == ROOT / name
