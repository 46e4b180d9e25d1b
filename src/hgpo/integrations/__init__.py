"""Integrations with other trainers. Only the commands import them."""
