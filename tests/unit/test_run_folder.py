"""A run's folder is complete or absent, with several processes making it and on a full disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from servelab.core.errors import Outage
from servelab.core.files import JsonFile, move_folder, write_text
from servelab.core.identity import content_id
from servelab.core.result_lock import claim, is_claimed
from servelab.core.run_spec import SENT, SERVED, RunSpec, Strict
from servelab.core.seal import Seal, seal_of
from servelab.measure.run_folder import SET_ASIDE, attempts, job_folder, make_once, read_status
from servelab.metrics.tables.io import write_table

SPEC = '{"made": "for the test"}'
RUN = content_id(json.loads(SPEC))
JOB = "0123456789abcdef" * 2


class Status(JsonFile):
    by: str
    run_id: str = RUN
    seal: Seal | None = None


class Part(Strict):
    kept: int


class OfAnotherVersion(Status):
    part: Part


def test_keys_of_other_versions_are_ignored(tmp_path):
    content = b'{"by": "me", "gone": 1, "part": {"kept": 2, "gone": 3}}'
    assert OfAnotherVersion.parse(content, tmp_path).part == Part(kept=2)


def write_sealed(folder: Path, by: str, name: str = RUN) -> None:
    """A complete run: `spec.json`, and `status.json` with a seal."""
    (folder / "spec.json").write_text(SPEC)
    status = Status(by=by, run_id=name)
    seal = seal_of(folder, status.model_dump(mode="json"))
    status.model_copy(update={"seal": seal}).write(folder / "status.json")


MAKE = """
import json, pathlib, sys, time
sys.path.insert(0, "HERE")
from test_run_folder import Status, write_sealed
from servelab.measure.run_folder import make_once

def work_in(folder):
    print("working", flush=True)
    for part in ("requests", "telemetry"):
        (folder / part).write_text(sys.argv[2])
        time.sleep(0.2)
    write_sealed(folder, sys.argv[2])

print(make_once(pathlib.Path(sys.argv[1]), work_in, Status).model_dump_json(), flush=True)
if sys.argv[2] == "killed":
    raise AssertionError("was to be killed")
""".replace("HERE", str(Path(__file__).parent))


def maker(output: Path, name: str) -> subprocess.Popen[str]:
    """A process that makes a run whose files all hold its name."""
    command = [sys.executable, "-c", MAKE, str(output), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def make(name: str):
    def work_in(folder: Path) -> None:
        (folder / "requests").write_text(name)
        write_sealed(folder, name)

    return work_in


def test_of_several_makers_one_works_and_all_have_its_result(tmp_path):
    output = tmp_path / RUN
    makers = [maker(output, f"maker {number}") for number in range(4)]
    said = [process.communicate(timeout=60) for process in makers]
    assert [process.returncode for process in makers] == [0] * 4, said
    statuses = {out.splitlines()[-1] for out, _ in said}
    assert sum("working" in out for out, _ in said) == 1
    assert len(statuses) == 1
    winner = json.loads(statuses.pop())["by"]
    assert {(output / part).read_text() for part in ("requests", "telemetry")} == {winner}
    assert list(tmp_path.iterdir()) == [output]


def test_what_a_killed_maker_leaves_is_removed_by_the_next(tmp_path):
    output = tmp_path / RUN
    killed = maker(output, "killed")
    assert killed.stdout is not None
    assert killed.stdout.readline() == "working\n"
    assert [attempt.is_alive for attempt in attempts(tmp_path)] == [True]
    killed.kill()
    killed.communicate()
    (left,) = attempts(tmp_path)
    assert (left.id, left.host, left.pid) == (RUN, os.uname().nodename, killed.pid)
    assert not left.is_alive
    assert not output.exists()
    assert make_once(output, make("next"), Status).by == "next"
    assert list(tmp_path.iterdir()) == [output]


def broken(folder: Path) -> list[Path]:
    """What was set aside."""
    return sorted((folder / SET_ASIDE).iterdir()) if (folder / SET_ASIDE).exists() else []


@pytest.mark.parametrize("change", ["requests changed", "requests removed", "status removed", "a file added", "a file"])
def test_a_broken_run_is_set_aside_whole_and_made_again(tmp_path, capsys, change):
    output = tmp_path / RUN
    make_once(output, make("first"), Status)
    if change == "requests changed":
        (output / "requests").write_text("other")
    elif change == "a file added":
        (output / "more").write_text("x")
    elif change == "a file":
        shutil.rmtree(output)
        output.write_text("in the way")
    else:
        (output / change.replace(" removed", "").replace("status", "status.json")).unlink()
    left = output.read_text() if output.is_file() else {path.name: path.read_text() for path in output.iterdir()}
    assert make_once(output, make("second"), Status).by == "second"
    (aside,) = broken(tmp_path)
    kept = aside.read_text() if aside.is_file() else {path.name: path.read_text() for path in aside.iterdir()}
    assert kept == left
    line = capsys.readouterr().err
    assert line.startswith(f"run {RUN} is broken: ") and line.endswith(f"; moved to {aside}\n")
    assert make_once(output, make("third"), Status).by == "second"
    (output / "requests").write_text("broken again")
    assert make_once(output, make("fourth"), Status).by == "fourth"
    assert len(broken(tmp_path)) == 2


def test_without_shared_locks_the_first_to_finish_wins_and_nothing_is_mixed(tmp_path):
    """Another node whose claims are not seen here completes the run while it is being made."""

    def late(folder: Path) -> None:
        make("late")(folder)
        other = tmp_path / f".{RUN}.elsewhere.1.1.part"
        other.mkdir()
        make("first")(other)
        (tmp_path / RUN).mkdir()  # as Snakemake does before a job
        assert move_folder(other, tmp_path / RUN)

    assert make_once(tmp_path / RUN, late, Status).by == "first"
    assert (tmp_path / RUN / "requests").read_text() == "first"
    assert list(tmp_path.iterdir()) == [tmp_path / RUN]


def test_an_attempt_of_another_node_is_left_alone_until_it_is_long_over(tmp_path):
    alive, over = (tmp_path / f".{RUN}.elsewhere.{pid}.1.part" for pid in (1, 2))
    for folder in (alive, over):
        folder.mkdir()
        (folder / "server.log").touch()
        os.utime(folder, (0, 0))
    os.utime(over / "server.log", (0, 0))
    make_once(tmp_path / RUN, make("here"), Status)
    assert alive.exists() and not over.exists()


HOLDER = rf"process {os.getpid()} of \w+ since \d{{4}}-\d\d-\d\d \d\d:\d\d UTC on \S+ is working on this"


def test_a_claim_is_one_at_a_time_and_ends_with_its_holder(tmp_path):
    thing = tmp_path / "thing"
    held, free = threading.Event(), threading.Event()
    order = []

    def hold():
        with claim(thing):
            held.set()
            assert free.wait(30)
            order.append("first")

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    assert is_claimed(thing)
    with pytest.raises(Outage, match=HOLDER), claim(thing, wait=False):
        pass
    threading.Timer(0.3, free.set).start()
    with claim(thing):
        order.append("second")
    holder.join()
    assert order == ["first", "second"]
    assert not is_claimed(thing) and list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"only root may mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_nothing_half_done(small_disk):
    table = pa.table({"value": pa.array(range(500_000))})
    file = small_disk / "table.parquet"
    write_table(table.slice(0, 10), file)
    before = file.read_bytes()
    with pytest.raises(Outage, match=r"cannot write .*table.parquet: .*No space left on device"):
        write_table(table, file)
    assert file.read_bytes() == before
    with pytest.raises(Outage, match="No space left on device"):
        write_text(small_disk / "new.json", "x" * 2_000_000)

    def fill(folder: Path) -> None:
        (folder / "server.log").write_bytes(b"x" * 2_000_000)

    with pytest.raises(Outage, match=f"cannot write the results of {RUN}"):
        make_once(small_disk / RUN, fill, Status)
    assert list(small_disk.iterdir()) == [file]
    assert read_status(small_disk / RUN, Status) is None


def test_each_part_of_a_specification_is_served_or_sent():
    assert RunSpec.model_fields.keys() == SERVED | SENT and not SERVED & SENT


def test_what_a_killed_job_left_is_removed_by_the_next(tmp_path: Path):
    host, ended = os.uname().nodename, 4194304 + 1  # above the highest process id
    dead = tmp_path / f".{JOB}.{host}.{ended}.job"
    living, elsewhere = tmp_path / f".{JOB}.{host}.{os.getppid()}.job", tmp_path / f".{JOB}.elsewhere.{ended}.job"
    for folder in (dead, living, elsewhere):
        folder.mkdir()
    with job_folder(tmp_path, "f" * 32) as folder:
        (folder / "server.log").touch()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            path.name for path in (folder, living, elsewhere)
        )
    assert not folder.exists()
