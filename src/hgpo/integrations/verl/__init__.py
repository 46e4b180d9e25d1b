"""Training on verl."""
