"""Figures: definitions, units, intervals, table columns. May import core."""
