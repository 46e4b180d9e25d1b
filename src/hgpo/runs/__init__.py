"""A run on disk: its folder, lock, evaluations, metrics and summary. Both engines and every command use it."""
