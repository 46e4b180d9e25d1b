"""Making games: floor plans, task instances on them, their furnishing, splits of games, and the files they go to."""
