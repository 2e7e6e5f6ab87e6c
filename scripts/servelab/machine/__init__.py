"""The parts of a machine that a run may use: devices, cores, ports, a batch system's allocation.

May import metrics and core.
"""
