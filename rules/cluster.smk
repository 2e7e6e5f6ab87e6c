"""Gives every rule its environment and its place: measuring jobs go where the site says, all others stay here.

Included last, when all rules are defined. On one machine it only sets where temporary files go.
"""

from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

PLACEMENTS.place(str(SCRIPTS.resolve().parent / "envs/workflow.yaml"))

# The executor looks at its jobs 10 s later each time that none has ended, up to 180 s: devices would stay idle.
RemoteExecutor.next_seconds_between_status_checks = property(
    lambda executor: 20, lambda executor, seconds: None
)
