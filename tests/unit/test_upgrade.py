"""`servelab upgrade`: the verdict on a release, and the edit of the study's file."""

import shlex
import shutil
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path

import pytest
import upgrade_engine
import yaml
from bisect_releases import add_place_options, place_of

from servelab.core.errors import ConfigError
from servelab.core.yaml_file import read_yaml
from servelab.metrics.statistics import Interval
from servelab.search.bisect import ComparedReleases, ReleaseStart, Skipped
from servelab.search.upgrade import take_release
from servelab.study.study import Objective

ROOT = Path(__file__).parents[2]
BLOCK = """\
study: mine # kept
engines:
  other: {version: 1.0}
  vllm: # the only place for versions
    runtime: venv
    version: 0.33.0 # raised in November
"""


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(1, 4, "better"), (-4, -1, "worse"), (-2, 1, "same"), (-1, 9, "cannot tell")],
)
def test_the_whole_interval_decides(low, high, word):
    step = ComparedReleases("1", "2", [], Interval(0.0, low, high))
    assert step.word(Objective(metric="total_tokens_per_s", on="x", margin_percent=3)) == word
    opposite = {"better": "worse", "worse": "better"}.get(word, word)
    assert step.word(Objective(metric="ttft_ms", on="x", margin_percent=3)) == opposite


@pytest.mark.parametrize(
    ("words", "variable", "given", "place"),
    [
        ([], None, [], "on this machine"),
        ([], "slurm", [], "by the profile slurm"),  # `servelab run` reads it too
        (["--profile", "ours"], "slurm", ["--profile", "ours"], "by the profile ours"),
        (["--here"], "slurm", ["--here"], "in this allocation"),
    ],
)
def test_releases_are_measured_where_a_study_is_and_the_plan_says_where(words, variable, given, place, monkeypatch):
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    if variable:
        monkeypatch.setenv("SNAKEMAKE_PROFILE", variable)
    add_place_options(parser := ArgumentParser())
    assert place_of(parser.parse_args(words)) == (given, place)


@pytest.mark.parametrize("newest", ["1.0", None])
def test_what_cron_starts_each_night_ends_well_and_in_silence_where_nothing_is_newer(newest, monkeypatch, capsys):
    """Issue: once the study had the release that its line named, each night ended in an error."""
    monkeypatch.chdir(ROOT)
    words = ["cpu-smollm2", "--engine", "llama.cpp"]
    own = read_yaml(Path("config/studies/cpu-smollm2.yaml"))["engines"]["llama.cpp"]["version"]
    monkeypatch.setattr(upgrade_engine, "newest_release", lambda index, package: newest or own)
    monkeypatch.setattr(sys, "argv", ["servelab", "upgrade", *words, "--watch"])
    upgrade_engine.main(upgrade_engine.options().parse_args([*words, "--watch"]))
    line = shlex.split(capsys.readouterr().out)
    upgrade_engine.main(upgrade_engine.options().parse_args(line[line.index("upgrade") + 1 :]))
    assert capsys.readouterr().out == ""


def test_cron_tells_a_verdict_once_and_who_names_the_release_hears_it_again(tmp_path, monkeypatch, capsys):
    """Issue: a release that was slower ended each night with 3."""
    times, fault = iter(range(999)), [Skipped("no network")]

    class Made:
        """The new releases serve 10 % less."""

        def __init__(self, *_):
            pass

        def prepare(self, version):
            if fault:
                raise fault.pop()

        def measure(self, version, number):
            at = datetime.fromtimestamp(60 * next(times), UTC)
            return ReleaseStart(number % 2 + (90 if version.startswith("2099") else 100), at, at)

    def night(newest, *words):
        monkeypatch.setattr(upgrade_engine, "newest_release", lambda *_: newest)
        try:
            words = ["cpu-smollm2", "--engine", "llama.cpp", "--yes", *words]
            upgrade_engine.main(upgrade_engine.options().parse_args(words))
        except SystemExit as end:
            return end.code, "worse" in capsys.readouterr().out
        return 0, capsys.readouterr().out

    shutil.copytree(ROOT / "config/studies", tmp_path / "config/studies")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(upgrade_engine, "ReleaseStarts", Made)
    monkeypatch.setattr(upgrade_engine, "release_lock", lambda *_: ROOT / "pyproject.toml")
    assert night("2099.1") == (4, False)  # cannot tell: the next night tries again
    assert night("2099.1") == (3, True)
    assert night("2099.1") == (0, "")
    assert night("2099.1", "--to", "2099.1") == (3, True)
    assert night("2099.2") == (3, True)
    assert night("2099.2") == (0, "")


@pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        BLOCK + "    lock: envs/vllm-0.33.0.lock.txt # old\n",
        "study: mine # kept\nengines: {other: {version: 1.0}, vllm: {version: 0.33.0, runtime: venv}}\n",
    ],
    ids=["block", "with its lock", "braces"],
)
def test_only_version_and_lock_change(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    take_release(file, "vllm", "0.34.0", Path("envs/vllm-0.34.0.lock.txt"))
    before, after = yaml.safe_load(text), yaml.safe_load(file.read_text())
    before["engines"]["vllm"] |= {"version": "0.34.0", "lock": "envs/vllm-0.34.0.lock.txt"}
    assert after == before
    assert [line for line in text.splitlines() if "#" in line and "lock" not in line and "0.33" not in line] == [
        line for line in file.read_text().splitlines() if "kept" in line or "only place" in line
    ]


def test_a_file_without_the_entry_is_left_alone(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("engines: {}\n")
    with pytest.raises(ConfigError, match=r"engines\.vllm: write `version: 0\.34\.0`"):
        take_release(file, "vllm", "0.34.0", Path("envs/x.lock.txt"))
    assert file.read_text() == "engines: {}\n"
