"""Serving commands as they are published: read, told apart, and compared."""

import pytest

from servelab.study.recorded.commands import changes, read_command, same_command


@pytest.mark.parametrize(
    ("text", "words", "model", "options"),
    [
        ("vllm serve a/M -tp 8 --eager", ("vllm", "serve", "a/M"), "a/M", {"-tp": "8", "--eager": None}),
        (
            "python3 -m sglang.launch_server --model-path a/M --tp-size=2",
            ("python3", "-m", "sglang.launch_server"),
            "a/M",
            {"--model-path": "a/M", "--tp-size": "2"},
        ),
        ("X=1 trtllm-serve a/M --f='{\"a\": 1}'", ("trtllm-serve", "a/M"), "a/M", {"--f": '{"a": 1}'}),
    ],
)
def test_commands_are_read(text, words, model, options):
    command = read_command(text)
    assert (command.words, command.model, command.options) == (words, model, options)


def test_changes_are_what_differs():
    base = "vllm serve a/M -tp 8 --eager"
    assert changes(base, "vllm serve a/M --eager --seqs=4 -tp 4") == {"arguments": {"-tp": "4", "--seqs": "4"}}
    assert changes(base, "V=1 vllm serve a/N -tp 8") == {
        "model": "a/N",
        "arguments": {"--eager": False},
        "environment_variables": {"V": "1"},
    }
    assert changes(base, "trtllm-serve a/M") == {"program": "trtllm-serve"}
    assert changes(base, base) == {}


def test_commands_are_the_same_in_any_order_and_by_any_name_of_the_model():
    names = {"M": "a/M"}
    assert same_command("x serve M --a=1 --b", "x serve a/M --b --a 1", names)
    assert not same_command("x serve M --a=1", "x serve a/M --a=2", names)
    assert not same_command("x serve M", "V=1 x serve M", names)
