"""Models, datasets and workloads: fetched, checked, converted, generated. May import machine, metrics and core."""
