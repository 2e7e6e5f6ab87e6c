"""`servelab bench`: load on a server that already runs, measured and checked as a study's runs are.

May import report and the rooms below it.
"""
