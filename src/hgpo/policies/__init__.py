"""Policies: whatever answers a prompt."""
