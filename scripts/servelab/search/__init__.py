"""Plan, decide, recommend, forecast, preflight. May import results and the rooms below it."""
