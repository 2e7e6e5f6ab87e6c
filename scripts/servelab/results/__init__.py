"""Records to tables: parse, validity checks, improvements. May import study and the rooms below it."""
