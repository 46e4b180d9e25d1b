"""verl's agent workers, for an agent loop that returns rows as columns (`hgpo.integrations.verl.rows`). Needs verl.

Not among the modules that every process of a run imports, since those are imported while verl is. Ray imports this one
first in an agent worker: it imports verl, which imports `agent_loop` and the others in their order.
"""

from __future__ import annotations

from typing import Any

import ray

from hgpo.integrations.verl.verl_api import AgentLoopManagerTQ, AgentLoopWorkerTQ, DictConfigWrap, transfer_queue


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
        """Play an episode and put its rows into the queue; a lost one, which was logged, has none.

        verl's own method makes an agent loop for each episode, for which Hydra copies the whole configuration.
        """
        from hgpo.integrations.verl.agent_loop import StepwiseAgentLoop

        loop = StepwiseAgentLoop(DictConfigWrap(self.config), self.llm_client, self.tokenizer)
        rows = await loop.run(sampling_params, **row)
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
