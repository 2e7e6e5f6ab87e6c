"""Archives: one zip that holds a study whole, checks itself, and gives every table again without a network.

`contents` says what belongs to a study, `source` what made it, `checks` that it belongs together; `build` writes the
zip with `layout`'s manifest, `crate`'s metadata and `recipe`'s study file, without what `redaction` takes out.
`verify`, `restore` and `comparison` read archives, through `unpack` alone; `recompute` makes a study's tables again.
"""
