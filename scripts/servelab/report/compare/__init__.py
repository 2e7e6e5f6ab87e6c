"""Two studies side by side: which runs are comparable, what changed between them, and what cannot be compared.

`sides` reads a study's folder, `facts` describes a run field by field, `pairs` matches runs by their facts,
`comparison_table` judges each pair (schemas.COMPARISON) and `page` shows the table.
"""
