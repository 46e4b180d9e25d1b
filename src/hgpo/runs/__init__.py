"""Runs: a run's folder, and everything on disk that training, evaluation and reports of a run agree about."""
