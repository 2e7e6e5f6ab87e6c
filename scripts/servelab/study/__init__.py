"""What a user writes, checked, and plans as data. Imports measure and the rooms below it."""
