"""Which of the shell's variables reach a server or a load client."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_clients import OTHERS, plan

from servelab.core.credentials import PASS_VARIABLES, shell_variables
from servelab.core.errors import ConfigError
from servelab.measure.clients import CLIENTS


def test_only_what_any_program_needs_is_passed():
    shell = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "TZ": "UTC", "LD_PRELOAD": "x.so", "TMPDIRS": "1", "MY": "1"}
    found = shell_variables((), shell)
    assert found.needed.keys() == {"PATH", "HOME", "LC_ALL", "TZ"}
    assert (found.passed, found.kept_out) == ({}, ["LD_PRELOAD"])


def test_an_engine_names_how_its_own_variables_begin():
    shell = {"LLAMA_ARG_CTX_SIZE": "1", "VLLM_USE_V1": "0"}
    assert shell_variables(("LLAMA_",), shell).kept_out == ["LLAMA_ARG_CTX_SIZE"]
    assert shell_variables((), shell).kept_out == []


def test_a_variable_passed_by_name_must_be_set():
    with pytest.raises(
        ConfigError, match=rf"{PASS_VARIABLES}: LD_LIBRARY_PATH is not set here; set it, or take it out"
    ):
        shell_variables((), {PASS_VARIABLES: "LD_LIBRARY_PATH"})


@pytest.mark.parametrize(
    ("name", "value"), [("HF_TOKEN", "hf_" + "0123456789abcdefghij"), ("URL", "http://me:word" + "@host")]
)
def test_a_credential_is_not_passed(name, value):
    with pytest.raises(ConfigError, match=f"{name} holds a credential"):
        shell_variables((), {PASS_VARIABLES: name, name: value})


@pytest.mark.parametrize("name", OTHERS)
def test_a_client_of_others_has_no_more_of_the_shell_than_a_server(name, tmp_path, monkeypatch):
    """A proxy, for example, would be in the way of every request."""
    for variable in ("http_proxy", "HTTP_PROXY", "GUIDELLM__MAX_CONCURRENCY", "AIPERF_X", "OMP_NUM_THREADS"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/module/lib")
    monkeypatch.setenv(PASS_VARIABLES, "LD_LIBRARY_PATH")
    monkeypatch.setattr(CLIENTS.get(name).__class__, "prepare", lambda *_: [sys.executable, "-c", SAY])
    command = CLIENTS.get(name).command(plan(timeout_s=30), tmp_path, Path(sys.executable))
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout
    found = json.loads(said)
    needed = {"PATH", "HOME", "LANG", "USER", "LOGNAME", "TZ", "TMPDIR", "HF_HOME", "XDG_CACHE_HOME", "CUDA_CACHE_PATH"}
    left = {each for each in found if each not in needed and not each.startswith("LC_")}
    assert left == {"LD_LIBRARY_PATH", "HF_HUB_OFFLINE"}


SAY = "import json, os; print(json.dumps(dict(os.environ)))"
