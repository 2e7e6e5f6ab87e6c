"""What every room uses: names, identities, errors, atomic file writes, processes. May import no other room."""
