"""A player that solves household games from what it reads."""
