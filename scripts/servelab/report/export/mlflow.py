"""MLflow: a run of the study's experiment, with figures, command and files."""

from __future__ import annotations

import os
from typing import Any

from servelab.core.errors import ConfigError, Outage
from servelab.report.export import EXPORTS
from servelab.report.export.figures import Exported, ExportedFigure, client

_LONGEST = 6000
"""Characters of a parameter that MLflow takes."""


class Tracking:
    """A tracking server or a folder. Credentials come from MLflow's own variables, such as `MLFLOW_TRACKING_TOKEN`."""

    address: str | None = "the tracking server, http://host:5000, or sqlite:///file.db"

    def export(self, study: Exported, uri: str | None) -> str:
        """See `Export.export`. A metric is `<metric>/<workload>/<candidate>`; of a curve, the level is its step."""
        if not uri:
            raise ConfigError(f"--to mlflow needs --uri: {self.address}")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # figures go to this address and nowhere else
        mlflow: Any = client("mlflow")
        answer = study.answer
        try:
            tracking = mlflow.MlflowClient(tracking_uri=uri)
            found = tracking.get_experiment_by_name(f"servelab/{study.study}")
            experiment = found.experiment_id if found else tracking.create_experiment(f"servelab/{study.study}")
            run = tracking.create_run(experiment, run_name=f"{answer.engine} {answer.engine_version}").info.run_id
            about = {
                "command": answer.command,
                "model": answer.model,
                "engine": answer.engine,
                "engine_version": answer.engine_version,
                "objective": answer.objective,
                "evidence": answer.evidence,
            }
            for name, value in about.items():
                tracking.log_param(run, name, value[:_LONGEST])
            for figure in study.figures:
                tracking.log_metric(run, _name(figure), figure.value, step=round(figure.level or 0))
            for file in study.files:
                tracking.log_artifact(run, str(file), "tables" if file.parent.name == "tables" else None)
            tracking.set_terminated(run)
        except mlflow.exceptions.MlflowException as error:
            raise Outage(f"{uri}: did not take the figures of {study.study}: {str(error)[:300]}") from None
        return f"{uri}: {len(study.figures)} figures and {len(study.files)} files of {study.study}, run {run}"


def _name(figure: ExportedFigure) -> str:
    """MLflow's names may have spaces, slashes, dots and dashes, and no other sign."""
    labels = [value for name, value in figure.labels.items() if name not in ("study", "basis", "evidence", "load")]
    text = "/".join([figure.name, *labels])
    return "".join(sign if sign.isalnum() or sign in "_-./ " else "_" for sign in text)[:250]


EXPORTS.register("mlflow", Tracking())
