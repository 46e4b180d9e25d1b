"""The format of the official games, a `game.tw-pddl` file each: reading it into a `Game`, writing a `Game` to it."""
