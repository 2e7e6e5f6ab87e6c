"""Servelab: finds the fastest way to serve a language model on given hardware, and proves it.

The package knows nothing of Snakemake; `scripts/*.py` are the command lines that the workflow calls.
"""

__version__ = "0.2.0"
