"""Policies: models that answer prompts."""
