"""Options of named parts: unknown, missing and of the wrong type, for agents, servers and backends alike."""

import re
from dataclasses import dataclass

import pytest

from hgpo.agents import AgentSpec, make_agent
from hgpo.cli.main import main
from hgpo.options import converted_options
from hgpo.policies.backends import make_policy
from hgpo.policies.openai import server_policy
from tiny_models import tiny_model


def test_options_that_a_part_does_not_take_or_cannot_do_without_are_named():
    def make(model, *, url, folder, timeout=1.0):
        return model

    converted_options("part 'x'", make, {"url": "", "folder": ""}, given=1)
    with pytest.raises(ValueError, match="part 'x' has no option colour; it takes url, folder, timeout"):
        converted_options("part 'x'", make, {"url": "", "folder": "", "colour": ""}, given=1)
    with pytest.raises(ValueError, match=r"part 'x' needs the option folder$"):
        converted_options("part 'x'", make, {"url": ""}, given=1)
    with pytest.raises(ValueError, match=r"part 'x' needs the options url, folder$"):
        converted_options("part 'x'", make, {}, given=1)
    with pytest.raises(ValueError, match="part 'x' has no option model; it takes url"):
        converted_options("part 'x'", make, {"model": ""}, given=1)


def test_a_part_that_takes_any_option_is_checked_for_those_it_needs():
    def make(url, /, folder, *rest, **options):
        return url, folder, rest, options

    converted_options("part 'x'", make, {"folder": "", "colour": ""}, given=1)
    with pytest.raises(ValueError, match=r"part 'x' needs the option folder$"):
        converted_options("part 'x'", make, {"colour": ""}, given=1)


def test_values_get_the_declared_types():
    @dataclass
    class Part:
        words: tuple[str, ...]
        often: int = 1
        loud: bool = False

    def later(url, **options: float):
        return url, options

    assert converted_options("part 'x'", Part, {"words": ["a"], "often": "2"}) == {"words": ("a",), "often": 2}
    assert converted_options("part 'x'", Part, {"words": (), "loud": "no"}) == {"words": (), "loud": False}
    assert converted_options("part 'x'", later, {"any": "text"}, given=1) == {"any": "text"}
    with pytest.raises(ValueError, match=re.escape("part 'x': often = 1.5: Input should be a valid integer")):
        converted_options("part 'x'", Part, {"words": [], "often": 1.5})
    with pytest.raises(ValueError, match="part 'x': often = True: must be a number"):
        converted_options("part 'x'", Part, {"words": [], "often": True})


AGENT = AgentSpec("corridor", "compact", 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("react", {"examples": "two"}, "agent 'react': examples = 'two': Input should be a valid integer"),
        ("react", {"list_commands": "seldom"}, "agent 'react': list_commands = 'seldom': Input should be a valid bool"),
        ("reflexion", {"trials": 1.5}, "agent 'reflexion': trials = 1.5: Input should be a valid integer"),
    ],
)
def test_agents_refuse_options_of_the_wrong_type(name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make_agent(name, AGENT, options)


def test_no_means_no():
    assert not make_agent("react", AGENT, {"list_commands": "no"}).template.list_commands
    policy = server_policy("m", {"url": "http://127.0.0.1:9/v1", "sends_seed": "no"}, max_response_tokens=5)
    assert policy.server.sends_seed is False


@pytest.mark.parametrize(
    ("option", "value"),
    [("timeout", "soon"), ("timeout", 0), ("retries", -1), ("retries", 2.5), ("extra", "low"), ("key_variable", 5)],
)
def test_a_server_refuses_options_of_the_wrong_type(option, value, tmp_path, capsys):
    message = f"policy backend 'server': {option} = {value!r}: Input should be"
    with pytest.raises(ValueError, match=re.escape(message)):
        server_policy("m", {"url": "http://127.0.0.1:9/v1", option: value}, max_response_tokens=5)
    words = ["eval", "m", "--server", "http://127.0.0.1:9/v1", "--env", "corridor:CorridorSuite", "--split", "held_out"]
    words += ["-o", str(tmp_path / "out.json"), "environment.train_split=train", f"policy.options.{option}={value}"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("transformers", {"max_batch_size": -1}),
        ("transformers", {"max_batch_tokens": "many"}),
        ("server", {"url": "http://127.0.0.1:9/v1", "adapters": "adapters", "retries": -1}),
    ],
)
def test_a_backend_refuses_options_of_the_wrong_type(backend, options):
    *_, (option, value) = options.items()
    with pytest.raises(ValueError, match=re.escape(f"policy backend {backend!r}: {option} = {value!r}: Input should")):
        make_policy(backend, tiny_model(), options)
