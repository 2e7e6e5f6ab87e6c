"""Credentials: told by name and form, refused in studies, and not shown in errors."""

import subprocess
import sys

import pytest

from servelab.core.credentials import has_credential, is_secret, without_credentials

HUB, PASSWORD = "hf_" + "AbCdEfGh" * 4, "correct-horse-battery"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "hf_x", True),
        ("API_KEY", "abc", True),
        ("AWS_SECRET_ACCESS_KEY", "abc", True),
        ("DB_PASSWORD", "x", True),
        ("TOKENIZERS_PARALLELISM", "yes-please", False),
        ("MAX_TOKENS", "many", False),
        ("CACHE_KEY", "12", False),
        ("USE_TOKEN", "true", False),
        ("--api-key", "abc", True),
        ("api-key", "AZURE_KEY", False),  # the name of a variable, as header-env has it
        ("--hf-token", "abc", True),
        ("--eos-token", "<|end|>", False),
        ("--max-prefill-token", 4096, False),
        ("--image-token", "image", False),
        ("api_key", None, False),
        ("password", "", False),
    ],
)
def test_what_is_a_secret_by_its_name(name, value, secret):
    assert is_secret(name, value) is secret


def test_errors_show_no_credentials():
    made = without_credentials(f"a from https://u:{PASSWORD}@mirror.org/hub: HTTP 401, Authorization: Bearer {HUB}")
    assert made == "a from https://redacted-secret@mirror.org/hub: HTTP 401, Authorization: Bearer redacted-secret"
    assert has_credential(f"x {HUB}") and not has_credential("a token of the hub")
    assert PASSWORD not in made
    named = '{"header-env": {"api-key": "AZURE_KEY"}}'
    assert without_credentials(named) == named


@pytest.mark.parametrize("colour", ["\x1b[31m", "\x1b[1;36m", r"\x1b[0m", r"\u001B[38;5;9m", r"\033[1m"])
def test_colours_hide_no_credential(colour):
    """Their last letter is no part of the word behind it."""
    for named in (f"--api-key {PASSWORD}1", f"postgresql://app:{PASSWORD}@db:5432/x", f"Cookie: session={PASSWORD}"):
        made = without_credentials(f"{colour}{named}\x1b[0m\n")
        assert PASSWORD not in made and "redacted-secret" in made
    plain = f"{colour}INFO\x1b[0m 512 tokens\n"
    assert without_credentials(plain) == plain and not has_credential(plain)


def test_nothing_on_standard_error_shows_credentials():
    """Neither an error of ours, nor a line of progress, nor a traceback."""
    code = (
        "import sys\nfrom servelab.core.cli import run\n"
        f"def main():\n    print('from {HUB}', file=sys.stderr)\n    raise ValueError('{HUB}')\nrun(main)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "ValueError: redacted-secret" in done.stderr
    assert HUB not in done.stderr and "from redacted-secret" in done.stderr
