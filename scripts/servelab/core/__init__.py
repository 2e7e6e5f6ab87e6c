"""What every room uses: names, identities, errors, atomic file writes, processes. Imports no other room."""
