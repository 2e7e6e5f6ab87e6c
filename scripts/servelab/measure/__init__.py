"""One run: start the server, send the load, sample, stop, write. Imports engines and the rooms below it."""
