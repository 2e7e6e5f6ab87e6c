"""Plan, decide, recommend, forecast, preflight. Imports results and the rooms below it."""
