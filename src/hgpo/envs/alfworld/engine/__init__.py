"""The native engine: what a game allows, what a command changes, what is answered, and when the game is won."""
