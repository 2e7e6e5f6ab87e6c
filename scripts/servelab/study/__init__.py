"""Studies as a user writes them, checked, and plans as data. May import measure and the rooms below it."""
