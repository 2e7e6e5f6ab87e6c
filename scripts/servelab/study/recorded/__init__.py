"""Studies whose runs are logs: what a user writes of them, checked, and their plans."""
