"""verl and verl-agent."""
