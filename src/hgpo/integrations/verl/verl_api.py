"""The parts of verl and TransferQueue that this project uses. No other module imports verl or TransferQueue.

    from hgpo.integrations.verl.verl_api import PPOTrainer    # imports verl.trainer.ppo.v1
    original = replace("FSDPEngine._build_module", mine)      # in this process; returns verl's own

A port to another release starts here. `differences` lists the parts that the installed release lacks, or that have
other parameters, each with its use; it reads sources and imports nothing. `unknown_settings` lists settings that verl
does not have. Only a run shows changes of other names: of metrics (`metrics`), of a batch's tags and `extra_info`
(`rows`, `trainer`), of a checkpoint's files (`checkpoints`), and of the CPUs that verl requests from Ray (`preflight`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, NamedTuple

SUPPORTED = "verl>=0.9.1,<0.10"
"""The bound of the extra `verl` in pyproject.toml."""
TESTED = "'verl==0.9.1' 'TransferQueue==0.1.11'"
"""The releases of constraints-verl.txt."""

# "module: parts  # use"; the use of a line without one is that of its module. The first name of a part can be imported
# from here.
#   name, name as other    a name that the module defines or imports
#   Class: one two         methods and attributes of the class or its bases, including those that a method sets on self
#   name(a, b)             exactly these parameters, without self
#   name(a, b, ...)        these parameters in this order; all others have defaults
#   'text'                 text in the module's source
PARTS = """
verl: DataProto 'VERL_USE_EXTERNAL_MODULES'  # engine; launch: modules of every process
verl.trainer.main_ppo: run_ppo(config, task_runner_class) TaskRunnerV1  # launch
verl.trainer.constants_ppo: get_ppo_ray_runtime_env(...)  # launch starts Ray
verl.trainer.ppo.utils: need_reference_policy(config)  # launch checks settings
    Role: Critic  # trainer chooses the critic's workers
verl.utils.config: omega_conf_to_dataclass(config, ...)  # launch checks settings
    validate_config(config, use_reference_policy, use_critic)
verl.utils.tracking: 'VERL_FILE_LOGGER_PATH'  # metrics sets folders of trackers

verl.trainer.ppo.v1:  # trainer and trainers override parts of verl's loop; if verl renames one, it runs its own
    PPOTrainer: __init__(config) fit(agent_loop_manager) step(metrics, timing_raw) _validate()
    PPOTrainer: _init_resource_pool_mgr() _build_replay_buffer() _next_train_batch(num_prompts) _add_batch_to_generate()
    PPOTrainer: _balance_batch(batch, metrics, logging_prefix, keep_minibatch) _get_required_batch_multiple(dp_size)
    PPOTrainer: _compute_old_log_prob(batch, metrics) _compute_ref_log_prob(batch, metrics)
    PPOTrainer: _compute_values(batch, metrics) _compute_advantage(batch, metrics)
    PPOTrainer: _update_critic(batch, metrics) _update_actor(batch, metrics) _save_checkpoint() _load_checkpoint()
    PPOTrainer: _compute_metrics(batch, metrics, timing_raw, global_steps, epoch) trainer_mode
    PPOTrainer: config global_steps total_training_steps timing_raw role_worker_mapping  # trainer reads or sets it
    PPOTrainer: actor_rollout_wg ref_policy_wg ref_in_actor critic_wg  # trainer calls it
    PPOTrainer: agent_loop_manager replay_buffer  # trainer calls it
    PPOTrainer: _add_prompts_to_generate(num_prompts)  # trainers bounds the number
    PPOTrainerSync PPOTrainerColocateAsync PPOTrainerSeparateAsync register_trainer(name)  # trainers
    AgentLoopWorkerTQ: _run_agent_loop(sampling_params, trajectory, agent_name, trace, **kwargs)  # agent_workers
    AgentLoopWorkerTQ: config llm_client tokenizer  # agent_workers reads it
    AgentLoopManagerTQ: __init__(*args, **kwargs) agent_loop_workers_class generate_sequences(prompts)  # agent_workers
verl.trainer.ppo.v1.trainer_base: 'latest_checkpointed_iteration.txt'  # checkpoints completes the file
verl.trainer.ppo.padding_utils: 'is_padding'  # queue knows padding by this tag
verl.trainer.ppo.v1.replay_buffer:  # queue replaces the wait for groups
    ReplayBuffer: _wait_for_next_poll(partition_id, last_debug_time) poll_interval pending_keys running_keys
    ReplayBuffer: sample(global_steps, partition_id, batch_size)  # trainer plays evaluations
    'no materializable trajectories'  # trainer names the reason
verl.utils.debug: marked_timer(name, timing_raw, ...)  # trainer
verl.utils.metric: reduce_metrics(metrics)  # trainer and critic
verl.utils.py_functional: rename_dict(data, prefix) convert_to_regular_types(obj)  # trainer and critic
verl.utils.tensordict_utils: get_tensordict(tensor_dict, ...)  # trainer, engine, head: values beside the columns
    assign_non_tensor_data(tensor_dict, key, val) get_non_tensor_data(data, key, default)
transfer_queue: get_client()  # queue, critic, trainer and agent_workers read and write rows and tags
    kv_batch_put(keys, partition_id, fields, tags, ...) async_kv_batch_put(keys, partition_id, fields, tags, ...)
    kv_batch_get(keys, partition_id, select_fields, ...) kv_list(partition_id, ...) kv_clear(keys, partition_id, ...)
    KVBatchMeta: keys tags partition_id fields extra_info
transfer_queue.metadata: '_size'  # queue sets it after leaving out rows
transfer_queue.client: 'TQ_NUM_THREADS'  # launch bounds the threads
    TransferQueueClient: kv_retrieve_meta(keys, partition_id, create, ...)  # queue reads tags of some rows

verl.workers.rollout.llm_server:  # agent_loop keeps a server for an episode
    LLMServerClient: __init__ _acquire_server(request_id, **extra) _release_server(server_id, request_id) config
    LLMServerClient: generate(request_id, prompt_ids, sampling_params, ...)  # env_pool asks for a response

verl.workers.engine_workers:  # trainer and critic call it on the worker group
    ActorRolloutRefWorker: compute_log_prob(data) compute_ref_log_prob(data) update_actor(data)
    TrainingWorker: infer_batch(data) train_mini_batch(data) engine
    TrainingWorker: _postprocess_output(output, global_token_num, delta_time, forward_only, images_seqlens)
    ppo_loss(config, model_output, data, dp_group)  # engine replaces it: weights of tokens
    initialize_global_process_group_ray(timeout_second, backend)  # cpu replaces it: a CPU has one backend
verl.workers.engine.fsdp.transformer_impl: CPUOffloadPolicy  # cpu replaces it: no pinned memory
    FSDPEngine: _build_module()  # engine replaces it: rotary embeddings in float32
    FSDPEngine: forward_backward_batch(data, loss_function, forward_only)  # engine replaces it: weights of tokens
    FSDPEngine: get_data_parallel_group()  # engine
    FSDPEngineWithLMHead: prepare_model_inputs(micro_batch)  # head replaces it: logits of response tokens only
    FSDPEngineWithLMHead: prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)  # head, too
    FSDPEngineWithLMHead: use_ulysses_sp module  # head
    'input_ids_rmpad_rolled' 'temperature_rmpad' 'shift_labels'  # head
    FSDPEngineWithValueHead: prepare_model_inputs(micro_batch)  # head keeps verl's
    FSDPEngineWithValueHead: _build_lora_module(module) model_config  # critic: a head that is trained beside adapters
verl.workers.engine:  # critic and cpu register engines
    EngineRegistry: _engines register(model_type, backend, device, ...)
verl.utils.model:  # critic replaces it: a head of zeros, with any attention
    load_valuehead_model(local_path, torch_dtype, model_config, trust_remote_code)
verl.utils.fsdp_utils:  # engine replaces it: a fused head stays in the outermost unit
    _select_fsdp2_wrap_targets(model, fsdp_transformer_layer_cls_to_wrap)
verl.models.transformers.monkey_patch: '_verl_fused_kernels_backend'  # engine asks for fused kernels
verl.workers.utils.losses: agg_loss as losses_agg_loss 'global_batch_info'  # engine replaces it: weights of tokens
verl.trainer.ppo.core_algos:  # engine replaces it: weights of tokens
    agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size, batch_num_tokens, global_batch_size, loss_scale_factor)
verl.utils.torch_functional:  # engine replaces it: a warm-up that does not start at 0
    get_constant_schedule_with_warmup(optimizer, num_warmup_steps, last_epoch)
    get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, zero_indexed_step, ...)
verl.utils.checkpoint.fsdp_checkpoint_manager:  # engine replaces it: only an adapter is saved
    FSDPCheckpointManager: save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep) _has_lora()
    FSDPCheckpointManager: should_save_hf_model() checkpoint_save_contents model rank
verl.trainer.ppo.rollout_corr_helper:  # engine corrects for the rollout engine's log-probs
    compute_rollout_correction_and_add_to_batch(batch, rollout_corr_config)
verl.workers.utils.padding: response_to_nested(tensor, response_mask)  # engine
verl.utils.device: get_device_id()  # engine
verl.single_controller.base.decorator: register(dispatch_mode, ...) as register_method  # critic: on all ranks
    Dispatch 'ONE_TO_ALL'
verl.single_controller.base.worker_group:  # critic counts ranks
    WorkerGroup: _dispatch_info
verl.single_controller.base.worker:  # critic counts ranks
    Worker: _query_dispatch_info(mesh_name)

verl.plugin.platform.platform_manager: 'VERL_PLATFORM'  # launch selects `cpu.CpuPlatform`
verl.plugin.platform:  # cpu answers verl's questions about its accelerator
    PlatformRegistry: register(platform)
    PlatformBase: device_name vendor_name device_module set_device synchronize set_allocator_settings empty_cache
    PlatformBase: profiler_start profiler_stop cudart is_available is_ipc_supported current_device device_count
    PlatformBase: get_device_capability communication_backend_name visible_devices_envvar ray_resource_name
    PlatformBase: ray_noset_envvars ray_resource_options manual_seed manual_seed_all nvtx_range
verl.workers.rollout.base: _ROLLOUT_REGISTRY as rollout_registry  # cpu sends weights to its own server
    BaseRollout: __init__(config, model_config, device_mesh, ...) resume(tags) release()
    BaseRollout: update_weights(weights, wire_format, **kwargs)
verl.workers.rollout.replica:  # cpu has a server of its own
    RolloutReplica: launch_servers() config model_config replica_rank servers _server_handle _server_address
    RolloutReplicaRegistry: register(name, loader)
    TokenOutput: token_ids log_probs stop_reason extra_fields
verl.workers.rollout.utils: ensure_async_iterator(iterable)  # cpu
verl.checkpoint_engine.base:  # cpu_weights sends weights through a store
    CheckpointEngineRegistry: register(backend)
    CheckpointEngine: build_topology(actor_wg_world_size, rollout_world_size, metadata) init_process_group(**kwargs)
    CheckpointEngine: prepare() finalize() send_weights(weights, global_steps) receive_weights(global_steps)
verl.workers.rollout.vllm_rollout.bucketed_weight_transfer:  # vllm_cpu receives weights
    BucketedWeightReceiver: __init__(zmq_handle, device, use_shm) receive_weights(on_bucket_received)
verl.workers.rollout.vllm_rollout.utils:  # vllm_cpu receives weights
    vLLMColocateWorkerExtension: update_weights_from_ipc(peft_config, base_sync_done, use_shm) _get_zmq_handle()
vllm.v1.worker.cpu_worker:  # vllm_cpu packs new weights
    CPUWorker: reload_weights model_runner
"""
_ENTRY = re.compile(r"('[^']+'|\w+)(?:\(([^)]*)\))?(?: as (\w+))?")

_ENGINE = "actor_rollout_ref.actor.fsdp_config"
READ_SETTINGS = (
    *(f"{engine}.{name}_offload" for engine in (_ENGINE, "critic.fsdp") for name in ("param", "optimizer")),
    *(f"{engine}.offload_policy" for engine in (_ENGINE, "critic.fsdp")),
    "actor_rollout_ref.model.use_fused_kernels",
    *(f"actor_rollout_ref.rollout.{name}" for name in ("nnodes", "n_gpus_per_node")),
    "actor_rollout_ref.rollout.checkpoint_engine.backend",
    "algorithm.rollout_correction",
    "ray_kwargs.ray_init",
)
"""verl's settings that this project reads and does not set."""
OPEN_TABLES = {
    "apply_chat_template_kwargs",
    "engine_kwargs",
    "mixed_precision",
    "override_config",
    "override_optimizer_config",
    "ray_init",
}
"""Tables with any keys; verl passes them on."""
LEFT_OUT = {
    "actor_rollout_ref.actor.checkpoint.save_lora_only",
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
    "critic.ppo_infer_max_token_len_per_gpu",
}
"""Settings that verl's classes have and its YAML files do not have."""


class Part(NamedTuple):
    """A part in `PARTS`. `parameters` is None if they are not compared; `alias` is the name to import from here."""

    module: str
    name: str
    parameters: str | None
    alias: str
    use: str


def parts(table: str) -> Iterator[Part]:
    """The parts in a table such as `PARTS`."""
    module = use = ""
    for line in table.splitlines():
        text, _, of_line = line.partition("  # ")
        if not line.startswith(" "):
            (module, _, text), use = text.partition(":"), of_line
        owner, _, entries = text.rpartition(": ")
        for entry in _ENTRY.finditer(entries):
            name = f"{owner.strip()}.{entry[1]}" if owner else entry[1]
            yield Part(module, name, entry[2], entry[3] or name.partition(".")[0], of_line or use)


@cache
def _places() -> dict[str, tuple[str, str]]:
    """Name that can be imported from here -> module of verl, and the name there."""
    found = {"transfer_queue": ("transfer_queue", "")}
    for part in parts(PARTS):
        found.setdefault(part.alias, (part.module, part.name.partition(".")[0]))
    return found


def __getattr__(name: str) -> Any:
    """A part of verl, imported now."""
    if name not in _places():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _places()[name]
    holder = import_module(module)
    try:
        return getattr(holder, there) if there else holder
    except AttributeError as error:
        raise ImportError(f"the installed verl has no {module}.{there}; hgpo supports {SUPPORTED}") from error


def replace(target: str, new: Any) -> Any:
    """Replace "name", as imported from here, or "Class.member" in this process; return verl's own."""
    name, _, member = target.partition(".")
    module, attribute = _places()[name]
    holder: Any = import_module(module)
    if member:
        holder, attribute = getattr(holder, attribute), member
    original = getattr(holder, attribute)
    setattr(holder, attribute, new)
    return original


# ---- settings ------------------------------------------------------------------------------------------------------


def default_settings() -> Any:
    """verl's default settings."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    path = _path("verl.trainer.config")
    assert path is not None, "`preflight.require_verl` comes first"
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(path.parent), version_base=None):
        return compose(config_name="ppo_trainer")


def unknown_settings(verl_config: Any, names: Iterable[str]) -> list[str]:
    """The dotted names that are neither in `verl_config`, in `LEFT_OUT` nor in an open table."""
    from omegaconf import OmegaConf

    def known(name: str) -> bool:
        path = name.split(".")
        depth = next((index for index, part in enumerate(path) if part in OPEN_TABLES), len(path) - 1)
        table = OmegaConf.select(verl_config, ".".join(path[:depth]))
        return name in LEFT_OUT or (
            OmegaConf.is_dict(table) and (path[depth] in OPEN_TABLES or path[depth] in set(table))
        )

    return [name for name in names if not known(name)]


# ---- the installed release -----------------------------------------------------------------------------------------

_Found = tuple[str, ast.AST]
"""The name of a module, and a statement or an attribute in its source."""


@cache
def differences(table: str = PARTS) -> tuple[str, ...]:
    """The parts that the installed packages lack, or that have other parameters, each with its use."""
    installed = [part for part in parts(table) if find_spec(part.module.partition(".")[0])]
    return tuple(f"{problem} ({part.use})" for part in installed if (problem := _problem(part)))


def _problem(part: Part) -> str:
    name, _, member = part.name.partition(".")
    if name.startswith("'"):
        path = _path(part.module)
        known = path is not None and name[1:-1] in path.read_text(encoding="utf-8")
        return "" if known else f"no {name} in {part.module}"
    found = _definition(part.module, name)
    if found and (member or (part.parameters is not None and isinstance(found[1], ast.ClassDef))):
        found = _member(*found, member or "__init__")
    if found is None:
        return f"no {part.module}.{part.name}"
    if part.parameters is None or _fits(part.parameters, taken := _parameters(found[1])):
        return ""
    return f"{part.module}.{part.name}({', '.join(taken)}) instead of ({part.parameters})"


def _fits(expected: str, taken: dict[str, bool]) -> bool:
    listed = expected.split(", ") if expected else []
    if listed[-1:] != ["..."]:
        return listed == [*taken]
    named = [name for name in taken if name in listed]
    return named == listed[:-1] and all(optional for name, optional in taken.items() if name not in listed)


def _parameters(node: ast.AST) -> dict[str, bool]:
    """Each parameter except self -> whether it is optional; "..." if the node is not a function."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {"...": False}
    given, positional = node.args, [*node.args.posonlyargs, *node.args.args]
    required = len(positional) - len(given.defaults)
    found = {one.arg: number >= required for number, one in enumerate(positional) if one.arg not in ("self", "cls")}
    found |= {f"*{one.arg}": True for one in [given.vararg] if one}
    found |= {one.arg: default is not None for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)}
    return found | {f"**{one.arg}": True for one in [given.kwarg] if one}


def _definition(module: str, name: str, importers: tuple[str, ...] = ()) -> _Found | None:
    """Where a name of a module is defined, following imports; the import itself if it is from another package."""
    path = None if module in importers else _path(module)
    for node in _statements(path) if path else ():
        if name in _bound(node):
            return module, node
        if isinstance(node, ast.ImportFrom):
            package = module if path and path.name == "__init__.py" else module.rpartition(".")[0]
            source = resolve_name("." * node.level + (node.module or ""), package)
            foreign = source.partition(".")[0] != module.partition(".")[0]
            for alias in node.names:
                if foreign and (alias.asname or alias.name) == name:
                    return module, node
                if not foreign and (alias.name == "*" or (alias.asname or alias.name) == name):
                    searched = name if alias.name == "*" else alias.name
                    if found := _definition(source, searched, (*importers, module)):
                        return found
    return None


def _member(module: str, node: ast.AST, name: str) -> _Found | None:
    """A method or an attribute of a class or of its bases."""
    if not isinstance(node, ast.ClassDef):
        return None
    for inner in (*node.body, *(one for one in ast.walk(node) if isinstance(one, ast.Attribute))):
        if name in _bound(inner):
            return module, inner
    bases = (_definition(module, base.id) for base in node.bases if isinstance(base, ast.Name))
    return next((found for base in bases if base and (found := _member(*base, name))), None)


def _bound(node: ast.AST) -> list[str]:
    """The names that a statement, or an attribute of self that is set, binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Attribute(ast.Name("self"), name, ast.Store()):
            return [name]
        case ast.Assign(targets=targets):
            return [one.id for one in targets if isinstance(one, ast.Name)]
    return []


@cache
def _statements(path: Path) -> tuple[ast.stmt, ...]:
    """The top-level statements of a file, those under `if` and `try` last."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    under = [inner for node in tree.body if isinstance(node, ast.If | ast.Try) for inner in (*node.body, *node.orelse)]
    return (*tree.body, *under)


def _path(module: str) -> Path | None:
    """The file of a module; None if the module or its package is missing."""
    root, *rest = module.split(".")
    spec = find_spec(root)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0], *rest)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path if path.exists() else None
