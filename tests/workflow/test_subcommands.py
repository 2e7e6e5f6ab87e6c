"""Subcommands of `servelab` that need results: on the finished tiny study, and on the recorded example's archive."""

import pytest
from servelab_command import SERVELAB, run_servelab


@pytest.fixture(scope="module")
def studied(finished, tmp_path_factory):
    """A copy of the finished tiny study. Nothing of it is measured again."""
    return finished.copy(tmp_path_factory.mktemp("command") / "workspace")


@pytest.fixture(scope="module")
def zipped(archived_example, tmp_path_factory):
    """A copy of the recorded example with its archive."""
    return archived_example.copy(tmp_path_factory.mktemp("command") / "example")


@pytest.mark.parametrize(
    ("words", "folder", "said"),
    [
        (("plan", "tiny"), "config", "tiny: nothing left to measure"),
        (("run", "tiny"), "docs-of-mine", "Nothing to be done"),
        (("run", "--json", "tiny"), "config", '"exit_code": 0}'),
        (("status",), "config", "winner: "),
        (("report", "tiny"), "results", "report.html"),
        (("compare", "tiny", "studies/tiny", "--names", "a", "b"), "results", "Page: results/comparisons/a--b/"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_on_a_finished_study(words, folder, said, studied):
    (studied.folder / folder).mkdir(exist_ok=True)
    if words[0] in ("plan", "run"):  # Snakemake takes the place of the process
        done = studied.call(*SERVELAB, *words, folder=folder)
    else:
        done = run_servelab(*words, cwd=studied.folder / folder)
    assert done.returncode == 0, done.stdout
    assert said in done.stdout


def test_check_ends_with_an_error(studied):
    """One candidate of the tiny study has a flag that nobody knows."""
    done = run_servelab("check", "tiny", cwd=studied.folder / "config")
    assert done.returncode != 0
    assert "error: preflight: 1 error" in done.stderr


@pytest.mark.slow
def test_on_an_archive(zipped):
    again = zipped.call(*SERVELAB, "archive", "--config", "studies=[]", "recorded=[example]", folder="config")
    assert again.returncode == 0 and "Nothing to be done" in again.stdout, again.stdout
    archives = zipped.folder / "results/archives"
    (archive,) = [path.name for path in archives.rglob("*.zip")]
    folder = next(archives.rglob("*.zip")).parent.relative_to(zipped.folder)
    verified = zipped.call(*SERVELAB, "verify", "--accept-unsigned", archive, folder=folder)
    assert verified.returncode == 0, verified.stdout
    restored = zipped.call(
        *SERVELAB, "restore", "--accept-unsigned", archive, "--results", "../elsewhere", folder=folder
    )
    assert restored.returncode == 0, restored.stdout
    assert (zipped.folder / folder / "../elsewhere/recorded/example/report.html").exists()
