"""Snakemake with a look at its jobs every second: its executor waits 10 s longer after each that finds nothing."""

import asyncio

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


async def sleep(executor):
    await asyncio.sleep(1)


RemoteExecutor.sleep = sleep
main()
