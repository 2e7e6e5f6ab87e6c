"""Servelab: finds the fastest way to serve a language model on given hardware, and proves it.

The package knows nothing of Snakemake; `scripts/*.py` have the functions of its rules, and the commands.
"""

__version__ = "0.2.0"
