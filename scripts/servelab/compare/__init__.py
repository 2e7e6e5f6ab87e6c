"""Two studies side by side: which runs are alike but for what is compared, what changed, and what is not comparable.

`sides` reads a study's folder, `facts` says what a run is field by field, `pairs` matches runs by it, `verdict` judges
two of them, `table` makes schemas.COMPARISON and `page` shows it.
"""
