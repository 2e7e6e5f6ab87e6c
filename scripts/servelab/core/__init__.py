"""Shared by every room: names, identities, errors, atomic file writes, processes. May import no other room."""
