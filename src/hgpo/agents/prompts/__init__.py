"""Prompt templates: how a situation is told to a model, and how its answer is read back."""

from hgpo.agents.prompts.base import TEMPLATES, Situation, Template, get_template, register_template, template_names

__all__ = ["TEMPLATES", "Situation", "Template", "get_template", "register_template", "template_names"]
