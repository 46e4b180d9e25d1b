"""`hgpo compare`: evaluations of runs and models in one table, by split, with differences to a reference.

`entries` reads the evaluations, `table` aggregates them, `formats` writes the tables, `figure` draws learning curves.
"""
