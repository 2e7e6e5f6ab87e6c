"""Columns of every Parquet table, and how tables are read and written."""
