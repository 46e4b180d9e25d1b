from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgpo.assemble import prepare_start, training_suite
from hgpo.cli.main import main
from hgpo.config import Config, ConfigError, load_config
from hgpo.integrations.verl import launch, preflight
from hgpo.integrations.verl.launch import prepare_start_apart
from hgpo.integrations.verl.preflight import installed_version
from hgpo.runs.folder import RunDirectory, RunDirectoryError, RunInUseError, create_run_directory, exclusive
from hgpo.utils.progress import Reporter

TESTS = Path(__file__).parents[3]
RECIPE, QUICKSTART = TESTS / "corridor.toml", TESTS.parent / "recipes" / "quickstart" / "hgpo.toml"
SECRETS = {
    name: f"hush-{name}"
    for name in ("WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PASSWORD")
}

VERL_CONFIG = {
    "trainer": {"device": "cuda", "nnodes": 1, "n_gpus_per_node": 1},
    "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
    "actor_rollout_ref": {"rollout": {"nnodes": 0, "n_gpus_per_node": 1, "tensor_model_parallel_size": 1}},
}


def skip_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "compose", lambda config, run_directory=None: None)
    monkeypatch.setattr(launch, "check_here", lambda verl_config, machine, summarise: [])


FEW_GAMES = {"train_games": 60, "valid_seen_games": 4, "valid_unseen_games": 4}


class Launch:
    """`train` and `resume` up to where Ray would start."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        skip_checks(monkeypatch)
        monkeypatch.setattr(launch, "check_model", lambda config: None)
        monkeypatch.setattr(launch, "summarise_model", lambda config: SimpleNamespace(parameters=1))
        monkeypatch.setattr(launch, "_run", lambda run, *_: run)

    def config(self, directory: str) -> Config:
        run = {"name": "k2", "directory": str(self.folder / directory)}
        return Config.model_validate({"policy": {"model": "m"}, "run": run, "environment": {"options": FEW_GAMES}})

    def train(self, directory: str) -> RunDirectory:
        return launch.train(self.config(directory), Reporter(quiet=True))

    def resume(self, run: RunDirectory) -> RunDirectory:
        return launch.resume(run.path, Reporter(quiet=True))


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    return Launch(tmp_path, monkeypatch)


def test_a_run_that_is_there_already_is_told_to_resume(started: Launch) -> None:
    run = started.train("alfworld")
    with pytest.raises(RunDirectoryError, match="--resume"):
        started.train("alfworld")
    assert started.resume(run).path == run.path


def test_a_run_is_trained_by_one_process_at_a_time(started: Launch) -> None:
    run = started.train("alfworld")
    with exclusive(run.path), pytest.raises(RunInUseError, match="is being trained by"):
        started.resume(run)


def test_a_run_prints_its_model_its_plan_and_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    reporter = Reporter(quiet=True)
    monkeypatch.setattr(reporter, "say", said.append)
    skip_checks(monkeypatch)
    monkeypatch.setattr(launch, "_run", lambda run, *_: run)
    settings = ["policy.device=cpu", "verl.gpus_per_node=2", "training.learning_rate=1e-6"]
    settings += ["warm_start.demonstrations=20", "warm_start.probe_games=4"]
    settings += [f"environment.options.{option}={games}" for option, games in FEW_GAMES.items()]
    launch.train(load_config(Path("quickstart"), [*settings, f"run.directory={tmp_path}"]), reporter)
    model, plan, note = said
    assert model.endswith("parameters, on verl with 2 processes without a GPU")
    assert plan.startswith("Plan: 200 updates, each of 16 tasks with 8 rollouts")
    assert note.startswith("Note: training.learning_rate = 1e-06 suits a language model")


def test_a_model_that_is_not_there_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_checks(monkeypatch)
    settings = [f"policy.model={tmp_path / 'nothing'}", f"run.directory={tmp_path / 'runs'}"]
    with pytest.raises(ConfigError, match=r"policy\.model: .*nothing"):
        launch.train(load_config(Path("quickstart"), settings), Reporter(quiet=True))
    assert not (tmp_path / "runs").exists()


def test_a_cluster_that_is_not_there_leaves_the_folder_to_the_corrected_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    monkeypatch.setattr(launch, "prepare_start_apart", lambda *_, **__: pytest.fail("a warm start before the check"))
    settings = ["policy.device=cuda", "run.engine=verl", "training.mini_batch_size=4", "verl.ray_address=wronghost"]
    settings += [f"environment.options.{option}={games}" for option, games in FEW_GAMES.items()]
    settings += ["warm_start.demonstrations=20", "warm_start.probe_games=4", f"run.directory={tmp_path}"]
    with pytest.raises(ConfigError, match="cannot start or reach the cluster at wronghost: Invalid address"):
        launch.train(load_config(Path("quickstart"), settings), Reporter(quiet=True))
    assert list(tmp_path.rglob("config.toml")) == []


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    tree = {"policy": {"model": "m"}, "run": {"name": "k2", "directory": str(tmp_path / "runs")}}
    assert "global_step" not in str(launch.compose(Config.model_validate(tree)))
    assert not list(tmp_path.iterdir())


def test_a_dry_run_of_a_run_that_was_moved_has_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"policy": {"model": "m"}, "run": {"directory": str(tmp_path / "old"), "engine": "verl"}}
    run = create_run_directory(Config.model_validate(tree)).path.rename(tmp_path / "moved")
    folders: list[Path] = []
    monkeypatch.setattr(launch, "compose", lambda config, run_directory=None: folders.append(run_directory))
    monkeypatch.setattr(preflight, "require_verl", lambda: None)
    to_yaml = SimpleNamespace(OmegaConf=SimpleNamespace(to_yaml=lambda composed, resolve: ""))
    monkeypatch.setitem(sys.modules, "omegaconf", to_yaml)
    assert main(["train", "--resume", str(run), "--dry-run"]) == 0
    assert folders == [run]


def test_a_run_with_a_warm_start_is_composed_before_the_start_exists(tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    settings = ["policy.device=cpu", "run.engine=verl", "training.mini_batch_size=4", "run.name=k2"]
    composed = launch.compose(load_config(Path("quickstart"), settings), run_directory=tmp_path)
    assert composed.actor_rollout_ref.model.path == str(tmp_path / "start")


def test_no_variable_that_is_forwarded_sounds_like_a_secret() -> None:
    assert [name for name in launch.FORWARDED if re.search("KEY|TOKEN|SECRET|PASS|CREDENTIAL", name)] == []


def test_a_cluster_receives_the_variables_that_the_recipes_read() -> None:
    recipes = "".join(path.read_text() for path in (TESTS.parent / "recipes").rglob("*.toml"))
    named = set(re.findall(r'"\$(\w+)', recipes))
    assert named >= {"ALFWORLD_DATA", "WEBSHOP_DATA"}
    assert named <= set(launch.FORWARDED)


def test_a_models_folder_is_named_in_full_since_rays_processes_run_in_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    for named, path in (("model", str(tmp_path / "model")), ("some/model", "some/model")):
        composed = launch.compose(Config.model_validate({"policy": {"model": named}}))
        assert composed.actor_rollout_ref.model.path == path


@pytest.mark.parametrize("address", ["auto", None])
def test_no_secret_is_in_what_ray_is_started_with(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    import ray

    given: list[Any] = []
    monkeypatch.setattr(ray, "init", lambda **options: given.append(options))
    for name, value in {**SECRETS, "WANDB_MODE": "offline"}.items():
        monkeypatch.setenv(name, value)
    tree = {"policy": {"model": "m"}, "verl": {"ray_address": address} if address else {}}
    launch._start_ray(Config.model_validate(tree).verl, VERL_CONFIG, quiet=True)
    assert ("WANDB_MODE" in given[0]["runtime_env"]["env_vars"]) is (address is not None)
    assert "hush" not in repr(given)
    assert ("num_cpus" in given[0]) is (address is None)  # a running cluster has its own
    assert given[0]["address"] == (address or "local")  # else Ray joins a cluster that happens to run here


@pytest.mark.parametrize(("before", "expected"), [(None, "0"), ("1", "1")])
def test_vllm_keeps_what_it_compiled_unless_the_shell_says_otherwise(
    before: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    import ray

    given: list[Any] = []
    monkeypatch.setattr(ray, "init", lambda **options: given.append(options))
    monkeypatch.setenv("VLLM_DISABLE_COMPILE_CACHE", "to be restored")
    if before is None:
        monkeypatch.delenv("VLLM_DISABLE_COMPILE_CACHE")
    else:
        monkeypatch.setenv("VLLM_DISABLE_COMPILE_CACHE", before)
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/shared/vllm")
    config = Config.model_validate({"policy": {"model": "m", "device": "cuda"}, "verl": {"ray_address": "auto"}})
    launch.compose(config)
    launch._start_ray(config.verl, VERL_CONFIG, quiet=True)
    variables = given[0]["runtime_env"]["env_vars"]
    assert variables["VLLM_DISABLE_COMPILE_CACHE"] == expected
    assert variables["VLLM_CACHE_ROOT"] == "/shared/vllm"  # the workers of a joined cluster


def test_ray_is_started_again_where_the_machine_was_too_slow_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    import ray

    asked: list[int] = []

    def slow(times: int) -> Callable[..., None]:
        def init(**_: Any) -> None:
            asked.append(times)
            if len(asked) <= times:
                raise Exception("The current node timed out during startup. This could happen because")

        return init

    config = Config.model_validate({"policy": {"model": "m"}})
    monkeypatch.setattr(ray, "init", slow(2))
    launch._start_ray(config.verl, VERL_CONFIG, quiet=True)
    assert len(asked) == 3
    asked.clear()
    monkeypatch.setattr(ray, "init", slow(9))
    with pytest.raises(ConfigError, match="cannot start Ray on this machine: it was too slow 3 times"):
        launch._start_ray(config.verl, VERL_CONFIG, quiet=True)


@pytest.fixture
def small_ray(tmp_path: Path) -> Iterator[Path]:
    """Ray, started by a shell that knows no secrets; the folder of its logs."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'hgpo[verl]'")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield Path(ray._private.worker._global_node.get_session_dir_path())
    ray.shutdown()


@pytest.mark.slow
def test_the_trainers_process_gets_the_key_and_rays_files_do_not(
    small_ray: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    class Runner:
        def key(self) -> str | None:
            return os.environ.get("WANDB_API_KEY")

    monkeypatch.setenv("WANDB_API_KEY", SECRETS["WANDB_API_KEY"])
    watchdog = launch.Watchdog(Path("run"), lambda: "")
    actor = launch.WithSecrets(ray.remote(num_cpus=0)(Runner), watchdog).remote()
    assert ray.get(actor.key.remote()) == SECRETS["WANDB_API_KEY"]
    files = [path for path in small_ray.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"hush" in path.read_bytes()] == []


# ---- a warm start in a process of its own ---------------------------------------------------------------------------


def with_warm_start(*overrides: str) -> Config:
    return load_config(RECIPE, ["policy.device=cpu", *overrides])


@pytest.mark.slow
def test_it_is_the_start_that_would_have_been_made_here(tmp_path: Path) -> None:
    settings = with_warm_start(f"run.directory={tmp_path}")
    here, apart = RunDirectory(tmp_path / "here"), create_run_directory(settings)
    here.path.mkdir()
    suite = training_suite(settings.environment, settings.evaluation, settings.warm_start)
    prepare_start(here, settings, suite, Reporter(quiet=True))
    prepare_start_apart(apart, quiet=True)
    for name in ("model.safetensors", "tokenizer.json", "warm_start.json"):
        assert (apart.start / name).read_bytes() == (here.start / name).read_bytes(), name


def test_the_warm_start_takes_the_threads_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, before = [], torch.get_num_threads()
    monkeypatch.setattr(launch, "prepare_start", lambda *_: seen.append(torch.get_num_threads()))
    run = create_run_directory(with_warm_start(f"run.directory={tmp_path}", "run.threads=3"))
    launch._prepare(run.path, quiet=True)
    torch.set_num_threads(before)
    assert seen == [3]


@pytest.mark.slow
def test_its_errors_are_raised_here(tmp_path: Path) -> None:
    tree = with_warm_start(f"run.directory={tmp_path}").model_dump()
    tree["environment"]["name"] = "not_there:Suite"
    with pytest.raises(ConfigError, match="not_there"):
        prepare_start_apart(create_run_directory(Config.model_validate(tree)), quiet=True)


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(installed_version("verl") is not None, reason="verl is installed")
@pytest.mark.parametrize("extra", [["--dry-run"], []])
def test_without_verl_the_engine_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, extra: list[str]
) -> None:
    status = main(["train", str(QUICKSTART), f"run.directory={tmp_path}", "--engine", "verl", *extra])
    assert status == 2
    assert "pip install 'hgpo[verl]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # nothing was begun


def test_a_resumed_run_keeps_its_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", "--resume", str(tmp_path), "--engine", "verl"]) == 2
    assert "omit --engine" in capsys.readouterr().err
