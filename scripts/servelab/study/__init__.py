"""What a user writes, checked, and plans as data. May import measure and the rooms below it."""
