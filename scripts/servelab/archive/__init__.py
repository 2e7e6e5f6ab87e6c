"""Archives: one zip that holds a whole study, verifies itself and recreates every table without a network.

`contents` lists the files of a study and checks that they match, `redaction` removes secrets, `build` writes the zip
with `layout`'s manifest, `verify` makes all again that follows from its records, `restore` takes runs.

May import bench and the rooms below it.
"""
