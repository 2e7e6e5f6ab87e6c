"""Archives: one zip that holds a whole study, verifies itself and recreates every table without a network.

`contents` lists what belongs to a study, `workflow_source` finds the workflow that made it, `record_faults` checks that
the records match each other. `build` writes the zip with `layout`'s manifest, `crate`'s metadata and `recipe`'s study
file, after `redaction`. `verify`, `restore` and `compare` read archives, through `unpack` only; `recompute` recreates a
study's tables. May import bench and the rooms below it.
"""
