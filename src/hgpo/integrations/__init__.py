"""Adapters to other people's trainers. Nothing of the project but the commands imports them."""
