"""verl's agent workers, for an agent loop that returns rows as columns (`hgpo.integrations.verl.rows`). Needs verl.

Ray imports this module first in an agent worker. It imports verl, and verl imports the modules that every process of a
run needs (`launch`). This module cannot be one of them, since they are imported during the import of verl.
"""

from __future__ import annotations

from typing import Any

import ray

from hgpo.integrations.verl.verl_api import AgentLoopManagerTQ, AgentLoopWorkerTQ, transfer_queue


class EpisodeWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's agent worker, for `StepwiseAgentLoop`."""

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str,
        trace: bool = False,
        **row: Any,
    ) -> None:
        """Play an episode and put its rows into the queue. A lost episode has no rows.

        verl's own method creates the agent loop with Hydra, which copies the whole configuration for each episode.
        """
        from hgpo.integrations.verl.agent_loop import StepwiseAgentLoop

        rows = await StepwiseAgentLoop(self.config, self.llm_client, self.tokenizer).run(sampling_params, row)
        if rows is None:
            return
        await transfer_queue.async_kv_batch_put(
            keys=[f"{row['uid']}_{row['session_id']}_{step}" for step in range(len(rows.tags))],
            partition_id="val" if trajectory["validate"] else "train",
            fields=rows.columns,
            tags=[{"status": "success", "global_steps": row["global_steps"], **tag} for tag in rows.tags],
        )


class EpisodeManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager of agent workers, with `EpisodeWorker`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(EpisodeWorker)
