"""The recommended command of a report: what the baseline's command lacks is marked in it."""

from types import SimpleNamespace

import pytest

from servelab.report.answer_section import shown_command

LAUNCHED = "python -m server --model /a/b.gguf --threads 2"


@pytest.mark.parametrize(
    ("baseline", "marked"),
    [
        ("server --model a.gguf --threads 2", ["--model", "/a/b.gguf"]),
        ("server --model b.gguf --threads 4", ["--threads", "2"]),
        ("server --model b.gguf --threads 2 --flash-attn on", []),
    ],
)
def test_what_the_baseline_does_not_have_is_marked_also_where_only_a_path_differs(baseline, marked):
    """Weights that were made here are named by their path."""
    command = "server --model b.gguf --threads 2"
    recommended = SimpleNamespace(run_id="r", command=command, launch_command=LAUNCHED, changed=True)
    made = shown_command(recommended, SimpleNamespace(model_has_name=lambda _: False), baseline)
    assert made.text == LAUNCHED and made.is_marked == bool(marked)
    assert [word for word, changed in made.pieces if changed] == marked
    assert shown_command(recommended, SimpleNamespace(model_has_name=lambda _: True), baseline).text == command
