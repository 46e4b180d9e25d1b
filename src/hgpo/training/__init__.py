"""Training: losses, the policy update, checkpoints and the supervised warm start."""
