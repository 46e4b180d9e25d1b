"""Training through a server: what is refused and when, which adapters are loaded, and what a run survives."""

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from chat_server import Reply, fails, says
from corridor_runs import RECIPE, evaluations, quiet, recipe, start_folder, untimed
from hgpo.assemble import resume, train
from hgpo.cli.main import main
from hgpo.config import ConfigError
from hgpo.policies.base import Request
from hgpo.policies.chat import Chat
from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.openai import ServerRefused
from hgpo.policies.trained_server import make_server_policy
from hgpo.policies.weights import Adapter, add_adapter
from hgpo.runs.folder import RunDirectory, read_metrics
from served_model import ServedModel

SERVED = (
    "policy.backend=server",
    "policy.lora.rank=4",
    "policy.options.retries=0",
    "warm_start.enabled=false",
    "rollout.tasks_per_update=2",
    "rollout.group_size=3",
    "training.updates=2",
    "training.checkpoint_every=1",
    "training.learning_rate=0.05",
)
NONSENSE = Reply(b"<html>busy</html>", headers={"content-type": "text/html"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that knows the corridor's words."""
    return start_folder(tmp_path_factory.mktemp("start"))


def words(directory, served):
    """The settings of a run of the served model; its adapters lie in `directory`, too."""
    settings = {
        "run.directory": str(directory),
        "policy.model": served.name,
        "policy.options.url": served.server.url,
        "policy.options.adapters": str(directory / "adapters"),
    }
    return [*SERVED, *(f"{name}={value!r}" for name, value in settings.items())]


def config(directory, served, *overrides):
    return recipe(directory, *words(directory, served), *overrides)


def language_model(folder, chat=None):
    limits = GenerationLimits(120, 4, "float32", chat or Chat())
    start = LanguageModel.from_pretrained(folder, limits, device="cpu", dtype="float32")
    return start.changed(lambda model: add_adapter(model, Adapter(4, 8), seed=0))


def made(served, adapters, *, chat=None, retries=0):
    """The policy of a model with an adapter."""
    return make_server_policy(
        language_model(Path(served.name), chat), url=served.server.url, adapters=str(adapters), retries=retries
    )


def respond(policy, prompt="task : open the door", *, temperature=1.0):
    return asyncio.run(policy.respond(Request(prompt, np.array([0.3])), temperature=temperature))


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    """A run that nothing happened to, and what served it."""
    served, directory = ServedModel(folder), tmp_path_factory.mktemp("runs")
    with served.server:
        yield train(config(directory, served), quiet()), served, directory


# What is refused before anything is written or played


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("policy.lora.rank=0",), r"cannot receive whole weights.*policy\.lora\.rank above 0"),
        (("warm_start.enabled=true",), r"warm_start\.enabled.*the server's weights"),
    ],
)
def test_weights_that_the_server_does_not_hold_are_refused_before_it_is_asked(folder, tmp_path, overrides, said):
    served = ServedModel(folder)
    with served.server, pytest.raises(ConfigError, match=said):
        train(config(tmp_path, served, *overrides), quiet())
    assert not served.server.asked
    assert not list(tmp_path.iterdir())


def altered(change, served):
    """What `served` answers, changed in its JSON."""

    def answer(body):
        document = json.loads(served.answer(body).body)
        change(document, document["choices"][0])
        return Reply(json.dumps(document).encode())

    return answer


def without(name):
    """A change: the completion and its choice lack a field."""
    return lambda document, choice: (document.pop(name, None), choice.pop(name, None))


def emptied(document, choice):
    choice["logprobs"] = {"content": None}


def other_prompt(document, choice):
    document["prompt_token_ids"] = document["prompt_token_ids"][1:]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda served: altered(without("token_ids"), served), "gives no token ids.*serve the model with vLLM"),
        pytest.param(
            lambda served: altered(without("prompt_token_ids"), served),
            "gives no prompt token ids.*with vLLM",
            marks=pytest.mark.slow,
        ),
        (lambda served: altered(without("logprobs"), served), "gives no log-probs.*with vLLM"),
        pytest.param(lambda served: altered(emptied, served), "gives no log-probs.*with vLLM", marks=pytest.mark.slow),
        (lambda served: lambda body: says("left"), "gives no prompt token ids, token ids, log-probs.*with vLLM"),
        (lambda served: lambda body: fails(422), "rejects the request of training.*status 422.*with vLLM"),
        (lambda served: lambda body: NONSENSE, "gives an unreadable answer.*with vLLM"),
        (lambda served: lambda body: fails(404), "does not serve '.*start'.*status 404"),
        (lambda served: altered(other_prompt, served), "encodes a prompt as"),
    ],
)
def test_a_server_that_cannot_be_trained_with_is_refused_before_anything_is_played(folder, tmp_path, answer, said):
    served = ServedModel(folder)
    served.server.answers["/chat/completions"] = answer(served)
    with served.server, pytest.raises(ServerRefused, match=said):
        train(config(tmp_path, served), quiet())
    assert len(served.server.asked) == 1
    assert not list(tmp_path.iterdir())


def test_log_probs_without_the_temperature_are_refused(folder, tmp_path):
    served = ServedModel(folder, tempered=False)
    with served.server, pytest.raises(ServerRefused, match="--logprobs-mode processed_logprobs"):
        train(config(tmp_path, served), quiet())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [float("nan"), "high", 1.0])
def test_likeliest_tokens_without_valid_log_probs_are_refused(folder, tmp_path, value):
    def change(document, choice):
        choice["logprobs"]["content"][0]["top_logprobs"] = [{"token": "?", "logprob": value}]

    served = ServedModel(folder)
    served.server.answers["/chat/completions"] = altered(change, served)
    with served.server, pytest.raises(ServerRefused, match="gives invalid log-probs"):
        train(config(tmp_path, served), quiet())
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there_is_said(folder, tmp_path):
    served = ServedModel(folder)
    with served.server:
        settings = config(tmp_path, served)
    with pytest.raises(ServerRefused, match="cannot be reached"):
        train(settings, quiet())
    assert not list(tmp_path.iterdir())


def test_a_server_that_takes_no_adapters_is_refused_with_how_to_start_it(folder, tmp_path):
    served = ServedModel(folder)
    del served.server.answers["/load_lora_adapter"]
    with served.server, pytest.raises(ServerRefused, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"):
        train(config(tmp_path, served), quiet())
    assert not [event for event in served.events if "hgpo-" in event]
    assert not list((tmp_path / "adapters").iterdir())


def test_an_option_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"policy backend 'server' needs the options? url, adapters"):
        train(recipe(tmp_path, "policy.model=m", *SERVED), quiet())


# Which adapters are loaded


def adapter_names(served):
    return [event.removeprefix("load ") for event in served.events if event.startswith("load ")]


@pytest.mark.slow
def test_each_update_is_played_with_the_adapter_that_the_last_one_made(finished):
    run, served, directory = finished
    first, second, last = adapter_names(served)
    after_the_check = served.events[1:]
    assert after_the_check == [
        *(f"load {first}", f"answer {first}"),
        *(f"load {second}", f"unload {first}", f"answer {second}"),
        *(f"load {last}", f"unload {second}", f"answer {last}"),  # the last evaluation
    ]
    assert list(served.loaded) == [last]
    assert [path.name for path in (directory / "adapters").iterdir()] == [last]
    rows = read_metrics(run)
    assert all(row["sampler_gap_max"] < 1e-4 for row in rows)
    assert all(row["gradient_norm"] > 0 for row in rows)


@pytest.mark.slow
def test_the_figures_tell_of_a_server_that_does_not_use_what_it_took(folder, tmp_path):
    served = ServedModel(folder, uses_adapters=False)
    with served.server:
        first, *later = read_metrics(train(config(tmp_path, served), quiet()))
    assert first["sampler_gap_max"] < 1e-4
    assert all(row["sampler_gap_max"] > 0.01 for row in later)


@pytest.mark.slow
def test_policies_beside_each_other_leave_each_others_adapters_alone(folder, tmp_path):
    """Two runs, or a run and an evaluation of it, on one server and one folder."""
    served = ServedModel(folder)
    with served.server:
        one, other = made(served, tmp_path), made(served, tmp_path)
        other.take_weights(language_model(folder).model)
        assert respond(one).text == respond(other).text
        one.take_weights(language_model(folder).model)
        respond(other)
    assert len(served.loaded) == len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_an_adapter_that_the_server_has_lost_need_not_be_unloaded(folder, tmp_path):
    served = ServedModel(folder)
    with served.server:
        policy = made(served, tmp_path)
        served.loaded.clear()
        with pytest.raises(ServerRefused, match=r"does not serve 'hgpo-.*status 404"):
            respond(policy)
        policy.take_weights(language_model(folder).model)
        respond(policy)


# What is asked


def test_requests_ask_for_the_whole_distribution_and_the_runs_own_prompt(folder, tmp_path):
    """A server's defaults are those of the model's author, and a control token in a text is the text's author's."""
    served = ServedModel(folder)
    with served.server:
        policy = made(served, tmp_path)
        asked = policy.body(Request("open <|end|><|user|> the door", np.array([0.3])), 0.7)
        response = respond(policy, "open <|end|><|user|> the door")
    whole = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert asked["extra_body"].items() >= {**whole, "return_token_ids": True, "logprobs": True}.items()
    expected = language_model(folder).encoder.encode_prompts(["open <|end|><|user|> the door"])[0]
    assert response.prompt_ids.tolist() == expected.tolist()
    assert response.prompt_ids.dtype == response.token_ids.dtype == np.int32
    assert response.log_probs.dtype == np.float32


def test_what_stands_around_prompts_is_what_the_run_says(folder, tmp_path):
    start = shutil.copytree(folder, tmp_path / "start")
    with (start / "chat_template.jinja").open("a") as template:
        template.write("{% if loud %}task{% endif %}")
    served = ServedModel(start)
    with served.server:
        policy = made(served, tmp_path / "adapters", chat=Chat("task", {"loud": True}))
        response = respond(policy)
    assert response.prompt_ids.tolist() == policy._encoder.encode_prompts(["task : open the door"])[0].tolist()


# What a server answers is looked at before anything is made of it


@pytest.fixture(scope="module")
def asked(folder, tmp_path_factory):
    """A served model, and the policy that asks it."""
    served = ServedModel(folder)
    with served.server:
        yield served, made(served, tmp_path_factory.mktemp("adapters"))


def fewer_log_probs(document, choice):
    choice["logprobs"]["content"].pop()


def setting(name, value):
    """A change: the choice has another value."""
    return lambda document, choice: choice.update({name: value})


def log_prob(value):
    """A change: that of the first token is another."""
    return lambda document, choice: choice["logprobs"]["content"][0].update(logprob=value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (fewer_log_probs, r"[0-3] log-probs for [1-4] tokens"),
        (setting("token_ids", [3, 10**6]), "token ids outside the model's vocabulary"),
        pytest.param(setting("token_ids", [-1]), "token ids outside the model's vocabulary", marks=pytest.mark.slow),
        (setting("token_ids", ["3"]), "token ids that are not integers"),
        pytest.param(setting("token_ids", [[3], [4, 5]]), "token ids that are not integers", marks=pytest.mark.slow),
        (setting("token_ids", [3] * 9), "a response of 9 tokens; the limit is 4"),
        (
            lambda document, choice: document.update(prompt_token_ids=[3] * 121),
            "prompt of 121 tokens; the limit is 120",
        ),
        (log_prob(float("nan")), "invalid log-probs"),  # as some write it, for all that JSON has none
        pytest.param(log_prob(0.5), "invalid log-probs", marks=pytest.mark.slow),
        pytest.param(log_prob(None), "invalid log-probs", marks=pytest.mark.slow),
        (lambda document, choice: choice["logprobs"].update(content=[1.0]), "invalid log-probs"),
        (without("logprobs"), "gives no log-probs"),
    ],
)
def test_an_answer_that_cannot_be_true_ends_it(asked, monkeypatch, change, said):
    served, policy = asked
    assert respond(policy).token_ids.size
    monkeypatch.setitem(served.server.answers, "/chat/completions", altered(change, served))
    with pytest.raises(ServerRefused, match=said):
        respond(policy)


def test_the_text_is_that_of_the_tokens_whatever_the_server_makes_of_them(asked, monkeypatch):
    """One that parses reasoning or tools moves parts of it elsewhere."""
    served, policy = asked
    expected = respond(policy)
    monkeypatch.setitem(
        served.server.answers, "/chat/completions", altered(setting("message", {"content": None}), served)
    )
    assert respond(policy).text == expected.text != ""


# What a run survives


class Mortal(ServedModel):
    """Breaks off every connection once it has answered `left` requests with its second adapter."""

    left = 10.0

    def answer(self, body):
        self.left -= len(adapter_names(self)) == 2
        return Reply(drop=True) if self.left < 0 else super().answer(body)


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True], ids=["it is back", "another process serves it"])
def test_a_server_that_dies_in_an_update_ends_training_and_resumed_it_ends_with_the_same_figures(
    finished, folder, tmp_path, capsys, restarted
):
    served = Mortal(folder)
    with served.server:
        assert main(["train", str(RECIPE), *words(tmp_path, served), "--quiet"]) == 2
        said = capsys.readouterr().err
        assert f"{served.server.url}: APIConnectionError" in said
        run = RunDirectory(tmp_path / "corridor")
        assert f"`hgpo train --resume {run.path}` continues the run." in said
        assert [row["update"] for row in read_metrics(run)] == [1]
        served.left = float("inf")
        if restarted:
            served.loaded.clear()
        run.evaluation("before").unlink()  # it is played again, with the policy of the start
        resume(run.path, quiet())
    assert untimed(run) == untimed(finished[0])
    assert evaluations(run) == evaluations(finished[0])


@pytest.mark.slow
def test_the_start_of_a_run_can_be_played_through_its_server(finished, capsys):
    run, served, _ = finished
    before = len(served.events)
    assert main(["eval", str(run.path), "--checkpoint", "start", "--quiet"]) == 0
    assert served.events[before:][-1].startswith("answer hgpo-")
