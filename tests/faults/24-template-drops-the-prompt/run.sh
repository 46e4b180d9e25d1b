#!/bin/bash
# A chat template that leaves out the prompt is rejected. Exit status 0: correct.
. "$(dirname "$0")/../lib/env.sh"
"$PY" -W ignore - <<'P'
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from hgpo.policies.chat import PromptEncoder
inner = Tokenizer(models.WordLevel({c: i for i, c in enumerate(["<unk>", *map(chr, range(32, 127))])}, unk_token="<unk>")); inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="<unk>")
tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}<assistant>"
try: encoder = PromptEncoder(tokenizer, 4096)
except ValueError as error: print("refused:", error); sys.exit(0)
shown = tokenizer.decode(encoder.encode_prompts(["Put the mug on the desk."])[0]); print(repr(shown)); sys.exit("m u g" not in shown)
P
