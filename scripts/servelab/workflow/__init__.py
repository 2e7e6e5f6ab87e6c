"""What the rules need besides Snakemake: which files belong together, what a run needs, which code decides an output.

May import archive and the rooms below it. Of Snakemake it knows what the rules pass in.
"""
