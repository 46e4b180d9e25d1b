"""The group inspector: what each step was compared with, as one HTML file, figures and a terminal summary.

`loading` reads what there is, `analysis` lets every estimator judge it, `sampling` chooses whole tasks, `page` writes.
"""
