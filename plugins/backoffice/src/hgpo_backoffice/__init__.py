"""A back office for hgpo: a customer's requests, twelve typed tools, policies, and an exact reward."""

from hgpo_backoffice.env import BackofficeEnv
from hgpo_backoffice.suite import backoffice_suite

__all__ = ["BackofficeEnv", "backoffice_suite"]
