"""Any policy that can be asked: a run's, a model's, or a served one's."""

from __future__ import annotations

from pathlib import Path

from hgpo.config import Config
from hgpo.policies.base import AsyncPolicy
from hgpo.policies.in_turn import answering_apart
from hgpo.policies.server import server_policy
from hgpo.runs.asking import is_run
from hgpo.runs.folder import RunDirectory
from hgpo.training.policies import load_checkpoint_policy, load_language_model, run_policy
from hgpo.training.threads import use_threads


def asked_policy(source: str, config: Config, checkpoint: str = "newest") -> tuple[AsyncPolicy, str]:
    """What answers, and its name for tables.

    Args:
        source: see `hgpo.runs.asking.settings_for`.
        config: which that function made.
        checkpoint: of a run.

    Raises:
        ValueError: there is no such policy, or something is not installed that it needs.
    """
    served = config.policy.backend == "server"
    if not served or is_run(source):
        use_threads(config)
    if is_run(source):
        policy, found = load_checkpoint_policy(RunDirectory(Path(source)), config, checkpoint)
        return answering_apart(policy), f"{Path(source).resolve().name} ({found})"
    if served:
        asked = config.policy
        usage = {"max_response_tokens": asked.max_response_tokens, "system_prompt": asked.system_prompt}
        return server_policy(asked.model, asked.options, **usage), asked.model
    language_model = load_language_model(config.policy.model, config, trained=False)
    return answering_apart(run_policy(config, language_model)), source
