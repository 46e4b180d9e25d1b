"""Tests with vLLM itself, in the environment that `make vllm-test` makes; elsewhere there is nothing to collect."""

from __future__ import annotations

from hgpo.policies.backends import BACKENDS

collect_ignore_glob = ["test_*.py"] if BACKENDS.get("vllm").missing() else []
