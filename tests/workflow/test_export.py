"""Figures of a study handed to other tools, through these tools' own clients."""

import gzip
import json
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pandas as pd
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from workspace import ROOT

from servelab.report.export import EXPORTS

pytestmark = pytest.mark.slow

STUDY = "qwen3-14b-h100"
CHECK = """
import sys
import mlflow
client = mlflow.MlflowClient(sys.argv[1])
(run,) = client.search_runs([client.get_experiment_by_name(sys.argv[2]).experiment_id])
files = [file.path for file in client.list_artifacts(run.info.run_id)]
print(__import__("json").dumps([run.data.metrics, run.data.params, files]))
"""
DECODE = """
import sys
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
request = ExportMetricsServiceRequest.FromString(sys.stdin.buffer.read())
points = [
    [metric.name, point.as_double, {each.key: each.value.string_value for each in point.attributes}]
    for metric in request.resource_metrics[0].scope_metrics[0].metrics
    for point in metric.gauge.data_points
]
print(__import__("json").dumps(points))
"""


@pytest.fixture(scope="module")
def folder(recorded):
    return recorded.folder / "results/recorded" / STUDY


@pytest.fixture(scope="module")
def changes(folder):
    """(stage, workload, metric, candidate) → change in percent, of the study's own table."""
    rows = pd.read_parquet(folder / "improvements.parquet").dropna(subset="change_percent")
    return {(row.stage, row.workload, row.metric, row.candidate): row.change_percent for row in rows.itertuples()}


def export(python, folder, *arguments):
    command = [python, str(ROOT / "scripts/export_figures.py"), str(folder), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def key(labels):
    return tuple(labels[name] for name in ("stage", "workload", "metric", "candidate"))


@pytest.mark.parametrize(("form", "parse"), [("prometheus", prometheus), ("openmetrics", openmetrics)])
def test_texts_hold_every_published_change(form, parse, folder, changes):
    from servelab.report.export.figures import exported

    families = {family.name: family for family in parse(EXPORTS.get(form).export(exported(folder), None))}
    found = {key(sample.labels): sample.value for sample in families["servelab_change_percent"].samples}
    assert found == pytest.approx(changes)
    (answer,) = families["servelab_answer"].samples
    assert answer.labels["command"] == json.loads((folder / "recommended.json").read_text())["command"]


def test_what_is_no_finished_study_and_what_is_not_installed_are_one_line(folder, tmp_path):
    import sys

    (tmp_path / "begun").mkdir()
    for arguments, said in (
        ((tmp_path / "begun",), "is not finished"),
        ((folder, "--to", "otlp"), "--to otlp needs --uri"),
        ((folder, "--to", "mlflow", "--uri", "sqlite:///x.db"), "make export"),
    ):
        done = export(sys.executable, *arguments)
        assert done.returncode == 2 and re.fullmatch(f"error: .*{re.escape(said)}.*\n", done.stderr), done.stderr


def test_mlflow_has_figures_command_and_files(folder, changes, publish_programs, tmp_path):
    python, uri = str(publish_programs / "python"), f"sqlite:///{tmp_path / 'mlflow.db'}"
    done = export(python, folder, "--to", "mlflow", "--uri", uri)
    assert done.returncode == 0, done.stderr[-2000:]
    checked = subprocess.run(
        [python, "-c", CHECK, uri, f"servelab/{STUDY}"], cwd=folder, capture_output=True, text=True, check=True
    )
    metrics, parameters, files = json.loads(checked.stdout)
    found = {name: value for name, value in metrics.items() if name.startswith("change_percent/")}
    assert sorted(found.values()) == pytest.approx(sorted(changes.values()))
    assert parameters["command"] == json.loads((folder / "recommended.json").read_text())["command"]
    assert {"report.html", "recommended.json", "tables"} <= set(files)


def test_a_collector_gets_every_published_change(folder, changes, publish_programs):
    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(
                (self.path, gzip.decompress(body) if "gzip" in self.headers.get_all("Content-Encoding", []) else body)
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    python = str(publish_programs / "python")
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = export(python, folder, "--to", "otlp", "--uri", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert done.returncode == 0, done.stderr[-2000:]
    ((path, body),) = bodies
    points = json.loads(subprocess.run([python, "-c", DECODE], input=body, capture_output=True, check=True).stdout)
    found = {key(labels): value for name, value, labels in points if name == "servelab.change_percent"}
    assert path == "/v1/metrics" and found == pytest.approx(changes)
