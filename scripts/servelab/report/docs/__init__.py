"""Documentation made from the code: columns, keys, files, metrics, checks."""
