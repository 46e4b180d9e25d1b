"""Helpers without project concepts: files, checksums, terminal text, plot style, processes, progress."""
