"""The command `servelab`: each subcommand runs a script or a target of the workflow, from any folder of a checkout.

May import every other room.
"""
