"""Success on fixed evaluation sets: playing, statistics, result files."""
