"""HGPO in TRL's GRPOTrainer: a tiny model learns to walk through rooms, one word per step.

    pip install '.[train]' trl
    python examples/trl_steps.py

Written for TRL 1.16. Nothing is downloaded. GRPO has one advantage per completion; here every word has its own.
"""

import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from hgpo.integrations.trl import step_trainer
from hgpo.integrations.turns import StepAdvantages

WORDS = ["<pad>", "<eos>", "hall", "kitchen", "cellar", "garden", "left", "right"]
DOORS = {"hall": ("cellar", "kitchen"), "kitchen": ("hall", "garden"), "cellar": ("hall", "cellar")}
STEPS = 4


def tokenizer():
    """A tokenizer with one token per word."""
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def model():
    """A new model of 10,000 weights."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    return Qwen2ForCausalLM(
        Qwen2Config(vocab_size=len(WORDS), num_key_value_heads=2, eos_token_id=1, pad_token_id=0, **size)
    )


@torch.no_grad()
def walk(prompts, trainer):
    """Play one walk per prompt. A completion is word, room, word, room, …; the environment writes the rooms."""
    played = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "observations", "won")}
    for prompt in prompts:
        ids = trainer.processing_class(prompt)["input_ids"]
        said, logprobs, mask, rooms = [], [], [], [prompt.split()[-1]]
        while len(rooms) <= STEPS and rooms[-1] != "garden":
            logits = trainer.model(torch.tensor([ids + said], device=trainer.model.device)).logits[0, -1].float()
            chances = logits[[6, 7]].log_softmax(-1)
            choice = int(torch.multinomial(chances.exp(), 1))
            rooms.append(DOORS[rooms[-1]][choice])
            said += [6 + choice, WORDS.index(rooms[-1])]
            logprobs += [float(chances[choice]), 0.0]
            mask += [1, 0]
        row = (ids, said, logprobs, mask, rooms[:-1], rooms[-1] == "garden")
        for name, value in zip(played, row, strict=True):
            played[name].append(value)
    return played


def reward(won, **_):
    """1 if the walk reached the garden; `won` is a column that `walk` returns in addition to the tokens."""
    return [float(there) for there in won]


def main(updates=2, group=8):
    """Train with two groups per update."""
    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=2 * group,
        num_generations=group,
        max_completion_length=2 * STEPS,
        max_steps=updates,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=not torch.cuda.is_available(),
        bf16=False,
    )
    trainer = step_trainer(StepAdvantages("hgpo", options={"history_length": 1}))(
        model=model(),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["hall"] * 64}),
        processing_class=tokenizer(),
        rollout_func=walk,
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    for entry in main(updates=20).state.log_history:
        if "reward" in entry:
            print(f"update {entry['step']:>3}  in the garden {entry['reward']:.2f}")
