"""Files of steps, of this project and of other trainers: finding, reading and writing them.

`discover.find_step_files` lists the files of a path, `reading.read_batch` reads one as the estimators' input and
`tables.write_table` writes a table. A new format is a module that converts a file to a table and reports damage to
`schema.Problems`, with a line in `discover` and in `reading`.
"""
