"""What the rules need beside Snakemake: which files belong together, what a run needs, which code decides an output.

The room on top: it may import every other one, and none imports it. Of Snakemake it knows what the rules pass in.
"""
