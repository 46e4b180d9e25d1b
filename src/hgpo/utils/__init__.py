"""Helpers that know nothing of the project: files, checksums, text, processes, progress."""
