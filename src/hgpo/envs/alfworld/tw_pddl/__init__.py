"""Reading and writing `game.tw-pddl` files, the format of the official games."""
