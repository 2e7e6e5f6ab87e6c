"""What a figure is: definitions, units, intervals, table columns. May import core."""
