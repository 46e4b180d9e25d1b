"""Runs, evaluations and models side by side: one table, differences to a baseline, one figure.

`entries` reads what is compared, `table` and `differences` say what stands in the table, `formats` and `terminal` write
it, `curves` and `figure` draw it.
"""
