"""The workflow beside Snakemake's rules: files of a study, measuring jobs, where they run, what users see.

May import archive and the rooms below it. Of Snakemake it knows what the rules pass in.
"""
