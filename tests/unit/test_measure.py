"""When what a round's requests say is a failure, and the files of a run that has ended."""

from __future__ import annotations

from datetime import UTC, datetime

import made_run
import pyarrow as pa
import pytest

from servelab.core.identity import run_id
from servelab.core.run_spec import ProtocolSpec, RunSpec
from servelab.core.seal import faults_of_seal
from servelab.measure.load import LoadResult, LoadStats
from servelab.measure.load.records import excerpt
from servelab.measure.outcome import Outcome, check_served, write_run
from servelab.measure.run_files import RunStatus
from servelab.measure.server import CandidateFailed
from servelab.metrics.tables import schemas


def result(errors, end_s=1.0, **stats):
    rows = [{"round": 0, "request_index": i, "end_s": end_s, "error": error} for i, error in enumerate(errors)]
    return LoadResult(pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS), LoadStats(**stats))


def spec(round_timeout_s, **protocol):
    return RunSpec.model_construct(protocol=ProtocolSpec(round_timeout_s=round_timeout_s, **protocol))


@pytest.mark.parametrize(
    ("round_of", "protocol", "why"),
    [
        (
            result(["HTTP 500", "refused", "HTTP 500"]),
            {},
            "requests_failed: 3 of 3 requests failed, 2 of them: HTTP 500",
        ),
        (result([None, "timeout"], end_s=60.0), {}, "round_timeout: not finished in 60 s"),
        (result([None, "unfinished"], saturated=True), {"saturation_in_flight": 64}, "saturated: 64 requests were in"),
    ],
)
def test_a_round_without_a_valid_speed(round_of, protocol, why):
    with pytest.raises(CandidateFailed, match=why):
        check_served(round_of, spec(60, **protocol))


def test_a_run_is_sealed_without_what_a_client_left(tmp_path):
    run = made_run.spec()
    folder = tmp_path / run_id(run)
    (folder / "client-left").mkdir(parents=True)
    (folder / "client-left/result.json").touch()
    (tmp_path / "server.log").write_text("=== earlier\n=== this one\n")
    outcome = Outcome(manifest=made_run.manifest(run), logs_from={tmp_path / "server.log": 12})
    status = write_run(folder, run, outcome, datetime.now(UTC), job_id="job", accelerator_s=2.0)
    assert RunStatus.read(folder / "status.json") == status
    assert faults_of_seal(folder) == []
    assert (folder / "server.log").read_text() == "=== this one\n"
    assert not (folder / "client-left").exists()


def test_no_secret_that_a_server_printed_is_sealed(tmp_path):
    """Nor is one that is in its error, or in what it answered."""
    secret, password = "hf_" + "AbCdEfGh" * 4, "p4ssw0rd"
    run = made_run.spec()
    folder = tmp_path / run_id(run)
    folder.mkdir()
    (tmp_path / "server.log").write_text(
        f"from https://u:{password}@h.org\nexport HF_TOKEN={secret}\nthe server is ready\n"
    )
    failed = CandidateFailed("crashed", f"exit code 1: {secret}", ["Traceback", f"  login(token={secret!r})"])
    outcome = Outcome(manifest=made_run.manifest(run), failure=failed, logs_from={tmp_path / "server.log": 0})
    status = write_run(folder, run, outcome, datetime.now(UTC), job_id="job", accelerator_s=2.0)
    assert faults_of_seal(folder) == [] and len(status.log_lines) == 2
    kept = b"".join(path.read_bytes() for path in folder.iterdir())
    assert secret.encode() not in kept and password.encode() not in kept and kept.count(b"redacted-secret") == 4
    assert (folder / "server.log").read_text().endswith("ready\n")
    assert excerpt(b'{"error": {"message": "wrong key %s"}}' % secret.encode()) == "wrong key redacted-secret"
