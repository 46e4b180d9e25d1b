"""Files of steps, of this project and of others: finding, reading, joining and writing them.

`reading.read_rollouts` gives all steps of a path as a table and `step_batches.step_batch_from_table` what estimators
take; `reading.read_update` gives what can be read of one file; `writing.write_table` writes. A new format is a module
that makes a table of a file and tells `problems.Problems` what is wrong, with a line in `discover` and in `reading`.
"""
