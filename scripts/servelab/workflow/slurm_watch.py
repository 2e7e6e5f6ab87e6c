"""Says which key of the site asks Slurm for what it does not have: when the workflow starts, and while jobs wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.run_spec import HardwareSpec
from servelab.machine.slurm_refusals import Waiting, is_final, keys_of, refusal, unsatisfied
from servelab.study.site import Site

FIRST_S, EVERY_S = 30.0, 60.0
"""Time until the queue is looked at for the first time, and between looks: a request to Slurm each."""
_RULE, _WILDCARDS, _MEASURING = "rule_", "_wildcards_", "measure"
_TRIAL_MIN = 10


class SlurmWatch:
    """Looks at what a site asks of Slurm. It cancels nothing: to wait or to mend the site is the user's choice."""

    def __init__(self, site: Site, file: Path, hardware_of: Callable[[str], HardwareSpec], warn: Callable[[str], None]):
        """`hardware_of` gives a measuring job's hardware by its leader; `warn` takes a line."""
        self._site, self._file, self._hardware_of, self._warn = site, file, hardware_of, warn
        self._said: set[tuple[str, str]] = set()

    def start(self, hardware: list[HardwareSpec], folder: Path) -> None:
        """Warns of requests that Slurm refuses now, and from now on of the folder's jobs that it cannot start.

        `ConfigError` for requests that it will always refuse: their jobs would fail, and be tried again in vain.
        """
        refused = list(self.refused(hardware))
        if final := [line for line, reason in refused if is_final(reason)]:
            raise ConfigError("\n".join(f"{line}; change it, and start again" for line in final))
        for line, _ in refused:
            self._warn(line)
        threading.Thread(target=self._look_again_and_again, args=(folder,), daemon=True).start()

    def refused(self, hardware: list[HardwareSpec]) -> Iterator[tuple[str, str]]:
        """A line and Slurm's reason for each request of the site that it refuses, for this hardware or a cheap rule."""
        requests = {}
        for each in hardware:
            key, placement = self._site.keyed_placement(each)
            requests[key, f"a run on {each.count} × {each.accelerator}"] = placement.request(each, _TRIAL_MIN, 1)
        if self._site.cheap_rules:
            requests["cheap_rules", "rules that need no accelerator"] = self._site.cheap_rules.request()
        for (key, what), request in requests.items():
            if reason := refusal(request):
                yield f"{self._place(key, reason)}: Slurm refuses {what}: {reason}", reason

    def waiting(self, jobs: list[Waiting]) -> Iterator[str]:
        """A line for each key and reason of these jobs, the first time only."""
        for job in jobs:
            key = self._key(job)
            if (key, job.reason) not in self._said:
                self._said.add((key, job.reason))
                yield (
                    f"{self._place(key, job.reason)}: Slurm does not start job {job.id}: {job.reason}. Its jobs stay "
                    "queued; to change the site, press Ctrl-C, which cancels them, and start again"
                )

    def _look_again_and_again(self, folder: Path) -> None:
        pause = threading.Event()
        pause.wait(FIRST_S)
        while True:
            try:
                for line in self.waiting(unsatisfied(folder)):
                    self._warn(line)
            except ServelabError:  # Slurm does not answer now
                pass
            pause.wait(EVERY_S)

    def _place(self, key: str, reason: str) -> str:
        keys = keys_of(reason)
        return f"{self._file}: {key}{'.' if keys else ''}{' or '.join(keys)}"

    def _key(self, job: Waiting) -> str:
        rule, _, wildcards = job.comment.removeprefix(_RULE).partition(_WILDCARDS)
        if rule != _MEASURING:
            return "cheap_rules"
        try:
            return self._site.keyed_placement(self._hardware_of(wildcards))[0]
        except (ServelabError, LookupError, OSError):  # a job of an earlier plan
            return "accelerators or devices"
