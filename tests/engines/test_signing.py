"""Measuring jobs that sign their runs with a real key."""

from __future__ import annotations

import os
import subprocess

import pytest
from engines import doubles, jobs
from ssh_keys import IDENTITY, allow, make_key, signing_key

from servelab.measure.run_files import check_run

one_double = pytest.mark.parametrize("doubled", list(doubles.NEWEST)[:1], indirect=True)


def measure(runs, run, key):
    """Runs the job without a terminal and without an agent, as on a node of a cluster."""
    command = [*jobs.command(runs, [run]), f"sign={signing_key(key).model_dump_json()}"]
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    done = subprocess.run(
        command, cwd=jobs.ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@one_double
def test_a_run_is_signed_where_it_is_measured(doubled, requests_path, tmp_path):
    key = make_key(tmp_path / "key")
    run = doubled.run(doubled.spec(), requests_path)
    code, said = measure(tmp_path / "runs", run, key)
    assert code == 0, said
    found = check_run(jobs.folder(tmp_path / "runs", run), allow(tmp_path / "allowed", key))
    assert found.signer.identity == IDENTITY and not found.redacted


@one_double
def test_a_locked_key_ends_the_job_before_a_server_starts(doubled, requests_path, tmp_path):
    key = make_key(tmp_path / "key", passphrase="a long secret")
    (tmp_path / "runs").mkdir()
    code, said = measure(tmp_path / "runs", doubled.run(doubled.spec(), requests_path), key)
    assert code == 2
    why = f"has a passphrase, and no agent has the key: run `ssh-add {key}`, or name another key"
    assert said == f"error: sign.key: {key}: {why}\n"
    assert not list((tmp_path / "runs").glob("[0-9a-f]*"))
