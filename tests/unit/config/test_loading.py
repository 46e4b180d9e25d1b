import math
import subprocess
import sys

import pytest

from hgpo.config import Config, ConfigError, describe_settings, dump_config, load_config
from hgpo.config.recipes import recipe_named
from hgpo.runs.load_settings import settings_for

TINY = ["warm_start.enabled=true"]


def refused(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(None, [*TINY, *overrides])
    return str(error.value)


def test_a_dumped_config_loads_equal(tmp_path):
    changed = [
        "run.name=x",
        "advantage.options.preset=verl-agent",
        "advantage.options.length_weight_alpha=inf",
        "evaluation.seeds=[1, 2]",
        "training.dual_clip=none",
    ]
    config = load_config(None, [*TINY, *changed])
    (tmp_path / "config.toml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.toml") == config
    assert config.advantage.options == {"preset": "verl-agent", "length_weight_alpha": math.inf}
    assert config.evaluation.seeds == (1, 2)
    assert config.training.dual_clip is None


def test_the_home_of_an_unknown_user_is_a_name_like_any_other():
    config = load_config(None, [*TINY, "run.directory=~unknown-user/runs", "policy.model=~unknown-user/model"])
    assert config.run_directory.as_posix() == "~unknown-user/runs/run"
    assert config.policy.model == "~unknown-user/model"


@pytest.mark.parametrize("model", ["C:\\models\\qwen", "it's", 'say "it\'s"', "two\tcolumns", "zero\u200bwidth", "ü"])
def test_a_models_name_is_taken_as_it_was_given(model):
    assert settings_for(model, environment="alfworld").policy.model == model


@pytest.mark.parametrize("environment", ["alfworld", "webshop"])
def test_a_model_is_evaluated_with_prompt_and_step_limit_of_the_published_recipe(environment):
    published = load_config(recipe_named(f"verl/{environment}"))
    found = settings_for("some/model", environment=environment)
    assert (found.agent, found.environment.max_steps) == (published.agent, published.environment.max_steps)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.learning_rat=1", "training.learning_rat: unknown setting"),
        ("nonsense.x=1", "nonsense: unknown setting"),
        ("training.precision=bfloat16", "training.precision: unknown setting; did you mean policy.precision"),
        ("agent.history_length=1000000", "agent.history_length: Input should be less than or equal to 1000"),
        ("run.threads=100000", "run.threads: Input should be less than or equal to 1024"),
        ("training.learning_rate=true", "training.learning_rate: must be a number (got True)"),
        ("evaluation.seeds=[123,true]", "evaluation.seeds: must be a number (got [123, True])"),
        ("rollout.tasks_per_update=1e26", "rollout.tasks_per_update: "),
        (f"training.updates={10**26}", "training.updates: Input should be less than or equal to 1000000000"),
        (f"rollout.group_size={10**26}", "rollout.group_size: Input should be less than or equal to 1000000000"),
        ("evaluation.seeds=[1,1]", "give each value once, not (1, 1)"),
        ("agent.history_length=-1", "agent.history_length: Input should be greater than or equal to 0"),
        ("rollout.group_size=1", "rollout.group_size: Input should be greater than or equal to 2"),
        ("advantage.gamma=1.5", "advantage.gamma: Input should be less than or equal to 1"),
        ("advantage.estimator=hpgo", "unknown estimator 'hpgo'; did you mean hgpo? Known: "),
        ("advantage.options.mode=mean", "mode"),
        ("advantage.options.modes=mean_norm", "unknown option 'modes'"),
        ("advantage.options.history_length=3", "more history than the agent remembers"),
        ("environment.name=alfword", "unknown environment 'alfword'; did you mean alfworld? Known: alfworld"),
        ("environment.options.colour=red", "has no option colour"),
        ("agent.template=chatty", "unknown prompt template 'chatty'; known: "),
        ("evaluation.split=train", "would not be held out"),
        ("warm_start.enabled=false", "has random weights"),
        ("policy.system_prompt=Play.", "a tiny model knows the words of demonstrations only"),
        ("warm_start.target_low=0.9", "target_low 0.9 exceeds target_high 0.5"),
        ("run.name=../x", "run.name"),
        ("verl.evaluate_only=true", "add --engine verl, or use `hgpo eval`"),
        ("critic.value_clip=0", "critic.value_clip"),
        ("evaluation.seeds=5", "evaluation.seeds: must be a list, e.g. [5]"),
        ("evaluation.seeds=[-1]", "evaluation.seeds.0: Input should be greater than or equal to 0"),
        ("evaluation.seeds=[4294967296]", "evaluation.seeds.0: Input should be less than 4294967296"),
        ("rollout.temperature=inf", "rollout.temperature: Input should be a finite number"),
        ("training.learning_rate=nan", "training.learning_rate: Input should be a finite number"),
        ("run.name=2026-11-27", """run.name: must be text; write run.name='"…"' (got datetime.date(2026, 11, 27))"""),
        ("training.epochs", "'training.epochs' is not of the form NAME=VALUE"),
        ("run.name.x=1", "is a value, not a section"),
    ],
)
def test_what_is_unknown_or_contradictory_is_refused_by_name(override, message):
    overrides = ["run.name=ok", override] if override == "run.name.x=1" else [override]
    assert message in refused(*overrides)


def test_options_of_a_recipe_can_be_left_out_for_another_estimator():
    """What the message advises works."""
    overrides = ("advantage.options.history_length=1", "advantage.estimator=grpo")
    assert "`advantage.options={}` leaves out the options of a recipe" in refused(*overrides)
    config = load_config(None, ["policy.model=tiny", "warm_start.enabled=true", *overrides, "advantage.options={}"])
    assert config.estimator_options == {}


def test_settings_that_contradict_each_other_are_named_without_the_whole_table():
    assert refused("warm_start.target_low=0.9") == "warm_start: target_low 0.9 exceeds target_high 0.5"


def test_a_wrong_item_of_a_list_is_one_problem():
    assert refused("evaluation.seeds=[-1]").count("\n") == 0


def test_histories_are_compared_as_far_as_the_agent_remembers():
    remembers = [*TINY, "agent.history_length=4"]
    assert load_config(None, remembers).estimator_options == {"history_length": 4}
    mixed = [*remembers, "advantage.estimator=mixed_effects"]
    assert load_config(None, mixed).estimator_options == {"history_length": 4}
    for without in ("gigpo", "nested_td"):  # its groups are as deep as its own option says
        assert load_config(None, [*TINY, f"advantage.estimator={without}"]).estimator_options == {}


def test_an_agent_that_remembers_everything_sets_no_limit_to_the_histories_compared():
    options = {"history_length": 4}
    config = load_config(None, [*TINY, "agent.name=tools", "advantage.options.history_length=4"])
    assert config.estimator_options == options
    assert "more history than the agent remembers" in refused("agent.name=direct", "advantage.options.history_length=4")


def test_every_setting_is_described():
    rows = describe_settings()
    assert len(rows) == len({name for name, _, _ in rows})
    assert not [name for name, _, description in rows if not description]
    assert {name.partition(".")[0] for name, _, _ in rows} == set(Config.model_fields)


def test_a_setting_that_one_engine_alone_reads_says_so():
    said = {name for name, _, description in describe_settings() if description.endswith("(verl only)")}
    assert said == {name for name, _, _ in describe_settings() if name.startswith("verl.")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    ["import hgpo, hgpo.config", "import hgpo.config as c; c.load_config(None, ['warm_start.enabled=true'])"],
)
def test_settings_are_checked_before_anything_heavy_is_imported(statement):
    heavy = ("torch", "transformers", "ray", "verl", "vllm", "pandas", "pyarrow", "hydra", "omegaconf")
    code = f"{statement}; import sys; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_path_of_a_model_is_whole_since_a_run_may_be_resumed_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("models/own", "tiny", "served"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "own.gguf").touch()
    given = {
        "models/own": f"{tmp_path}/models/own",
        "~/models/own": f"{tmp_path}/models/own",
        "models/../own.gguf": f"{tmp_path}/own.gguf",
        "some/model": "some/model",
        "tiny": "tiny",
    }
    for model, stored in given.items():
        assert load_config(None, [*TINY, f"policy.model={model!r}"]).policy.model == stored
    on_a_server = ["policy.model=served", "policy.backend=server", "policy.options.url='http://127.0.0.1:9'"]
    assert load_config(None, [*TINY, *on_a_server]).policy.model == "served"


def test_a_value_of_several_lines_is_kept_whole_where_its_first_is_toml():
    text = '"Be brief."\nmode = 1'
    assert load_config(None, ["policy.model=m", f"policy.system_prompt={text}"]).policy.system_prompt == text
