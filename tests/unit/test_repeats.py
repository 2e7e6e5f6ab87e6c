"""Runs that the next invocation measures again: disturbed ones on a quieter machine, and those that a user names."""

from __future__ import annotations

import json
from pathlib import Path

import made_run
import pytest
from made_results import write_run

from servelab.cli.launch import snakemake_line
from servelab.core.errors import ConfigError
from servelab.measure.run_folder import SET_ASIDE
from servelab.measure.sealed_runs import Repeats, SealedRuns


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    """Two runs of last year: the first was disturbed while others had 60 % of the CPUs, the second failed."""
    made = [write_run(tmp_path / "runs", made_run.spec(protocol={"max_concurrency": n})) for n in (4, 8)]
    change(made[0], disturbed="waited", others_percent=60.0, finished_at="2025-01-01T00:00:00+00:00")
    change(made[1], outcome="failed", reason="crashed", finished_at="2025-01-01T00:00:00+00:00")
    return made


def change(run: Path, **values) -> None:
    status = json.loads((run / "status.json").read_bytes())
    (run / "status.json").write_text(json.dumps(status | values))
    made_run.seal(run)


def missing(runs, *words, others=0.0, partners=None) -> tuple[list[int], list[str]]:
    """Numbers of the runs that are not complete, asked twice; and lines."""
    lines: list[str] = []
    repeats = Repeats(words, lambda run_id: (partners or {}).get(run_id, ()), lambda: others)
    folder = runs[0].parent
    sealed = SealedRuns(folder, folder.parent / "marks", lines.append, repeats=repeats)
    for _ in range(2):
        found = [number for number, run in enumerate(runs) if not sealed.is_complete(run.name)]
    return found, lines


@pytest.mark.parametrize(
    ("words", "others", "expected"),
    [
        ((), 10.0, [0]),
        ((), 50.0, []),  # as busy as it was
        (("nothing",), 10.0, []),
        (("disturbed",), 50.0, [0]),
        (("failed",), 50.0, [1]),
        (("failed", "disturbed"), 50.0, [0, 1]),
    ],
)
def test_runs_that_are_measured_again(words, others, expected, runs):
    assert missing(runs, *words, others=others)[0] == expected
    aside = [each.name.split("-")[0] for each in (runs[0].parent / SET_ASIDE).glob("*")]
    assert sorted(aside) == sorted(runs[number].name for number in expected), "what was measured is kept"
    assert [run.exists() for run in runs] == [number not in expected for number in range(2)]


def test_a_dry_run_counts_them_and_only_a_real_one_moves_them(runs):
    """A real one looks first, for its forecast, and moves them when it plans its jobs."""
    lines, running = [], []
    sealed = SealedRuns(
        runs[0].parent,
        runs[0].parents[1] / "marks",
        lines.append,
        is_running=lambda: bool(running),
        repeats=Repeats(others_percent=lambda: 0.0),
    )
    for _ in range(2):
        assert not sealed.is_complete(runs[0].name) and runs[0].exists() and sealed.marks(runs[0].name)
    assert len(lines) == 1 and "was disturbed, waited" in lines[0]
    running.append(1)
    for _ in range(2):
        assert not sealed.is_complete(runs[0].name) and not runs[0].exists()


@pytest.mark.parametrize("first", [0, 1])
def test_a_pair_is_measured_together(first, runs):
    """In whichever order the two are looked at."""
    change(runs[1], outcome="ok", finished_at="2025-01-01T00:00:00+00:00")
    pair = {runs[0].name: [runs[1].name], runs[1].name: [runs[0].name]}
    assert missing([runs[first], runs[1 - first]], partners=pair)[0] == [0, 1]


def test_the_command_names_runs_to_measure_again(runs, tmp_path):
    (tmp_path / "results").mkdir()
    runs[0].parent.rename(tmp_path / "results/runs")
    begin = runs[0].name[:6]
    line = " ".join(snakemake_line([], ["a", "--again", "failed", begin, "-n"], ["a"], "slurm", tmp_path))
    assert line.endswith(f"-n --config studies=[a] again=[failed,{begin}]")
    for words, why in ((["--again"], "say which runs"), (["--again", "ffff"], "no run in results/runs")):
        with pytest.raises(ConfigError, match=why):
            snakemake_line([], words, ["a"], "slurm", tmp_path)
