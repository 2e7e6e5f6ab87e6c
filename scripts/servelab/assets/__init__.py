"""Models, datasets and workloads: fetched, checked, converted, generated. Imports core and metrics."""
