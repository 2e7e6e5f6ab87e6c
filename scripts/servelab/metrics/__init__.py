"""What a figure is: definitions, units, intervals, table columns. Imports core."""
