"""Archives: one zip that holds a whole study, verifies itself and recreates every table without a network.

`contents` lists the files of a study and checks that they match, `redaction` removes secrets, `build` writes the zip
with `layout`'s manifest. `verify` and `restore` read archives, through `unpack` only; `verify`
recreates a study's tables, and `shared_runs` takes runs from other results folders.

May import bench and the rooms below it.
"""
