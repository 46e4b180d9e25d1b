"""A .gguf file as an ordinary folder in Hugging Face format, which loads faster and which every server takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hgpo.policies.pretrained import load_model, load_tokenizer


def as_folder(model: Path, folder: Path) -> Path:
    """`model` itself if it is a folder; of a .gguf file the folder that is made of it, once."""
    if model.suffix != ".gguf":
        return model.resolve()
    if not (folder / "config.json").exists():
        partial = folder.with_name(f"{folder.name}.partial")
        load_tokenizer(model).save_pretrained(partial)
        loaded: Any = load_model(model, device="cpu", dtype="float32")
        loaded.save_pretrained(partial)
        partial.rename(folder)
    return folder
