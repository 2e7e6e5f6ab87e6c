"""Records to tables: parse, validity checks, improvements. Imports study and the rooms below it."""
