"""Two studies side by side: which runs are comparable, what changed between them, and what cannot be compared."""
