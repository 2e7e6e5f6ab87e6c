"""The report of a study, as Markdown and as one self-contained HTML file.

May import recorded and the rooms below it.
"""
