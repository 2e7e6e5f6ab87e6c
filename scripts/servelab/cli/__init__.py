"""The command `servelab`: each subcommand runs a script or a target of the workflow, from any folder of a checkout
or of studies.

May import workflow and the rooms below it.
"""
