"""Helpers without knowledge of the project: files, text, processes, progress, plot style."""
