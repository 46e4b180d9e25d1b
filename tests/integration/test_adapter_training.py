"""A run that trains an adapter: killed and resumed, played, exported, and kept apart from other weights."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from corridor_runs import RECIPE, config, evaluations, killed_after, quiet, untimed
from hgpo.assemble import resume, train
from hgpo.cli.main import main
from hgpo.config import ConfigError, load_config
from hgpo.policies.base import Request
from hgpo.policies.weights import WrongBaseError
from hgpo.runs.checkpoints import write_checksums
from hgpo.runs.folder import RunDirectory, open_run_directory, read_metrics
from hgpo.training.load import RunPolicies

LORA = ("policy.lora.rank=4", "policy.lora.dropout=0.1", "training.kl_coefficient=0.1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(config(tmp_path_factory.mktemp("runs"), *LORA), quiet())


@pytest.mark.slow
def test_it_learns_something_and_holds_no_second_model(finished):
    assert any(row["kl"] > 0 for row in read_metrics(finished))
    for folder in finished.checkpoints.iterdir():
        assert not (folder / "model.safetensors").exists()
        assert load_file(folder / "adapter_model.safetensors")
    assert (finished.start / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("update", [1, 2, 3])
def test_killed_and_resumed_it_ends_with_the_same_figures(finished, tmp_path, update):
    run = killed_after(update, config(tmp_path, *LORA))
    resume(run.path, quiet())
    assert untimed(run) == untimed(finished)
    assert evaluations(run) == evaluations(finished)
    ends = [load_file(one.checkpoints / "3" / "adapter_model.safetensors") for one in (run, finished)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[1])


@pytest.mark.slow
def test_another_rank_in_the_settings_is_refused(finished, tmp_path):
    run = RunDirectory(shutil.copytree(finished.path, tmp_path / "run"))
    run.summary.unlink()
    run.config.write_text(run.config.read_text().replace("rank = 4\n", "rank = 8\n"))
    with pytest.raises(ConfigError, match=r"rank = 8, .* an adapter of rank 4: set it to 4 in .*config.toml"):
        resume(run.path, quiet())


@pytest.mark.slow
def test_it_does_not_go_on_beside_other_weights(tmp_path):
    run = killed_after(2, config(tmp_path, *LORA))
    weights = load_file(run.start / "model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name] + 1}, run.start / "model.safetensors", {"format": "pt"})
    write_checksums(run.start)  # as another run's start would be
    with pytest.raises(WrongBaseError, match="restore the model that the run started with"):
        resume(run.path, quiet())
    shutil.rmtree(run.start)
    assert main(["eval", str(run.path), "--split", "held_out"]) == 2


@pytest.mark.slow
def test_merged_and_exported_it_answers_alike_elsewhere(finished, tmp_path):
    output = tmp_path / "merged"
    assert main(["export", str(finished.path), "-o", str(output), "--merge"]) == 0
    run, settings = open_run_directory(finished.path)
    policy, _ = RunPolicies(run, settings.policy, settings.warm_start.enabled, settings.run.seed).policy("newest")
    tokenizer, model = AutoTokenizer.from_pretrained(output), AutoModelForCausalLM.from_pretrained(output)
    start = AutoModelForCausalLM.from_pretrained(finished.start)
    prompts = ["goal : right . now : you are at 1 .", "goal : left . now : you are at 2 .", "now"]
    for prompt, response in zip(prompts, policy.generate([Request(p) for p in prompts], temperature=0), strict=True):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        answer = model.generate(ids, max_new_tokens=4, do_sample=False)[0, ids.shape[1] :]
        assert answer.tolist() == response.token_ids.tolist()
        with torch.no_grad():
            assert not torch.allclose(model(ids).logits, start(ids).logits, atol=1e-4)


@pytest.mark.slow
def test_alone_it_is_exported_where_its_base_can_be_had(finished, tmp_path, capsys):
    assert main(["export", str(finished.path), "-o", str(tmp_path / "adapter")]) == 2
    assert "add --merge" in capsys.readouterr().err
    assert not (tmp_path / "adapter").exists()


def test_settings_that_nothing_reads_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"policy\.lora\.dropout is used only if policy\.lora\.rank is above 0"):
        config(tmp_path, "policy.lora.dropout=0.1")
    with pytest.raises(ValueError, match=r"policy\.lora\.dropout.*built-in"):
        load_config(RECIPE, ["run.engine=verl", "policy.lora.rank=4", "policy.lora.dropout=0.1"])


@pytest.mark.slow
def test_a_given_model_is_warmed_up_through_an_adapter_too(finished, tmp_path):
    given = tmp_path / "given"
    shutil.copytree(finished.start, given)
    run = train(
        config(tmp_path, *LORA, f"policy.model={str(given)!r}", "training.updates=1", "warm_start.max_updates=2"),
        quiet(),
    )
    before, after = (load_file(folder / "model.safetensors") for folder in (given, run.start))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert changed
    assert all("_proj." in name for name in changed)
    assert json.loads((run.start / "config.json").read_text())["architectures"] == ["Qwen2ForCausalLM"]
