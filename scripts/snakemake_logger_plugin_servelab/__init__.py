"""Snakemake's logger plugin `servelab`, which the profiles name: `servelab.workflow.console` says what it prints."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from snakemake.logging import DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from servelab.core.credentials import shown
from servelab.workflow.console import Console


class LogHandler(LogHandlerBase):
    """Writes to standard error, or to standard output where nothing is run."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        settings = self.common_settings
        console = Console(is_dry_run=settings.dryrun)
        self._stream = sys.stdout if settings.stdout else sys.stderr
        self._default: logging.Formatter = DefaultFormatter(settings.quiet, settings.show_failed_logs)
        told: dict[Any, Callable[[dict[str, Any]], list[str]]] = {
            LogEvent.JOB_INFO: console.job_begins,
            LogEvent.JOB_FINISHED: console.job_ends,
            LogEvent.PROGRESS: console.progress,
            LogEvent.JOB_ERROR: console.job_fails,
            LogEvent.ERROR: console.error,
            LogEvent.RUN_INFO: console.plan,
            LogEvent.RESOURCES_INFO: lambda _: [],
            LogEvent.JOB_STARTED: lambda _: [],
            LogEvent.WORKFLOW_STARTED: lambda _: [],
            None: lambda event: console.said(str(event["msg"] or "")),
        }
        # `--verbose` keeps all that Snakemake has to say
        self._told = {} if settings.verbose or settings.debug_dag else told

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record's lines, if it has any."""
        try:
            told = self._told.get(getattr(record, "event", None))
            text = "\n".join(told(record.__dict__)) if told else self._default.format(record)
            text = "" if text == "None" else text
            if text:
                self._stream.write(f"{shown(text)}\n")
            self._stream.flush()
        except BrokenPipeError:
            raise
        except Exception:
            self.handleError(record)
