"""One run: start the server, send the load, sample, stop, write. May import engines and the rooms below it."""
