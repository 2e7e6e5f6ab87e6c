"""Questions, the grading of answers, and whether two sets of answers differ. Imports core and metrics."""
