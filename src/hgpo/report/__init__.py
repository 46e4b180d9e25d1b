"""The group inspector: what each step was compared with, as one HTML file, charts and a terminal summary.

`analysis` computes every estimator on an update, `report` samples whole tasks, `document` packs the data, and
`rendering` writes the page. `compare_entries`, `compare_table`, `compare_formats`, `compare_figure`: `hgpo compare`.
"""
