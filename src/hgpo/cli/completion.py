"""`hgpo --print-completion SHELL`: what makes a shell complete verbs, options, recipes and settings. Not a verb.

The script is fixed text: no Python starts while somebody types. So it knows the recipes and settings of the release
that printed it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from hgpo.config import describe_settings
from hgpo.config.recipes import recipe_names

_SETTING = "section.name=value"
"""The metavar of every argument that takes settings."""
_BASH = """\
_hgpo_settings() {{ compgen -W "{settings}" -- "$1"; }}
_hgpo_recipes() {{ compgen -W "{recipes}" -- "$1"; _hgpo_settings "$1"; compgen -f -- "$1"; }}
"""
# A setting's name is followed by its value, not by a space.
_BASH_END = """
_hgpo_complete() {
  _shtab_hgpo "$@"
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null || :
}
complete -o filenames -F _hgpo_complete hgpo
"""
_ZSH = """\
_hgpo_settings() {{ compadd -S '' -- {settings} }}
_hgpo_recipes() {{ compadd -- {recipes}; _hgpo_settings; _files }}
"""


def completion_script(parser: argparse.ArgumentParser, verbs: Mapping[str, argparse.ArgumentParser], shell: str) -> str:
    """The script.

    Args:
        parser: the command's.
        verbs: the parser of every verb, complete.
        shell: "bash" or "zsh".

    Raises:
        ValueError: the library that writes it is missing.
    """
    try:
        import shtab
    except ImportError as error:
        raise ValueError('completion is written by the package shtab: pip install "hgpo[completion]"') from error
    for verb in verbs.values():
        for action in verb._actions:
            if (completed := _completed_by(action)) is not None:
                action.complete = shtab.FILE if completed == "files" else dict.fromkeys(("bash", "zsh"), completed)  # type: ignore[attr-defined]
    names = {
        "settings": " ".join(f"{name}=" for name, _, _ in describe_settings()),
        "recipes": " ".join(recipe_names()),
    }
    preamble = {"bash": _BASH.format(**names), "zsh": _ZSH.format(**names)}
    script: str = shtab.complete(parser, shell=shell, preamble=preamble)
    return script + _BASH_END if shell == "bash" else script


def _completed_by(action: argparse.Action) -> str | None:
    """A function of the script, "files", or None where there is nothing to offer, or choices that shtab sees itself."""
    if action.dest == "recipe":
        return "_hgpo_recipes"
    if action.metavar == _SETTING:
        return "_hgpo_settings"
    takes_path = action.type is Path or not action.option_strings
    return "files" if takes_path and not action.choices else None
