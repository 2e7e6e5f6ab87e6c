"""Prometheus' text format, and OpenMetrics, which collectors of OpenTelemetry read too."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from servelab.report.export import EXPORTS
from servelab.report.export.figures import Exported


class Text:
    """A text, for a file that node_exporter's textfile collector reads, or for an address that is scraped."""

    address: str | None = None

    def __init__(self, text_of: Callable[[CollectorRegistry], bytes]) -> None:
        self._text_of = text_of

    def export(self, study: Exported, uri: str | None) -> str:
        """The text. Gauges are `servelab_<metric>`; a point of a curve has the label `level`."""
        registry, gauges = CollectorRegistry(), {}
        for figure in study.figures:
            labels = dict(figure.labels) | ({} if figure.level is None else {"level": f"{figure.level:g}"})
            if figure.name not in gauges:
                name, text = f"servelab_{figure.name}", f"{figure.name} in {figure.unit}"
                gauges[figure.name] = Gauge(name, text, list(labels), registry=registry)
            gauges[figure.name].labels(**labels).set(figure.value)
        return self._text_of(registry).decode()


EXPORTS.register("prometheus", Text(generate_latest))
EXPORTS.register("openmetrics", Text(generate_openmetrics))
