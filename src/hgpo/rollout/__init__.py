"""Rollouts: playing episodes with a policy, and the files they are kept in."""
