"""OpenTelemetry: gauges to a collector, by its protocol over HTTP."""

from __future__ import annotations

from typing import Any

from servelab.core.errors import ConfigError, Outage
from servelab.report.export import EXPORTS
from servelab.report.export.figures import Exported, client


class Collector:
    """A collector. Headers, such as a key, come from `OTEL_EXPORTER_OTLP_HEADERS`."""

    address: str | None = "the collector, http://host:4318"

    def export(self, study: Exported, uri: str | None) -> str:
        """See `Export.export`. Instruments are `servelab.<metric>`; a point of a curve has the attribute `level`."""
        if not uri:
            raise ConfigError(f"--to otlp needs --uri: {self.address}")
        metrics: Any = client("opentelemetry.sdk.metrics")
        reading: Any = client("opentelemetry.sdk.metrics.export")
        sending: Any = client("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        address = f"{uri.rstrip('/')}/v1/metrics"
        kept = reading.InMemoryMetricReader()
        provider = metrics.MeterProvider(metric_readers=[kept], shutdown_on_exit=False)
        meter, gauges = provider.get_meter("servelab"), {}
        for figure in study.figures:
            if figure.name not in gauges:
                gauges[figure.name] = meter.create_gauge(f"servelab.{figure.name}", unit=figure.unit)
            level = {} if figure.level is None else {"level": figure.level}
            gauges[figure.name].set(figure.value, {**figure.labels, **level})
        sent = sending.OTLPMetricExporter(endpoint=address, timeout=30).export(kept.get_metrics_data())
        provider.shutdown()
        if sent is not reading.MetricExportResult.SUCCESS:
            raise Outage(f"{address}: did not take the figures of {study.study}; nothing is lost, export again")
        return f"{address}: {len(study.figures)} figures of {study.study}"


EXPORTS.register("otlp", Collector())
