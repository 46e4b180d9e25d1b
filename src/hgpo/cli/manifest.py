"""`hgpo manifest`: lists, builds and checks the manifests of evaluation sets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

DESCRIPTION = """\
A manifest names the tasks of an evaluation set, with SHA-256 digests of each game, first observation and goal, price
bounds and the catalogue. `hgpo eval` writes its id, and the tasks that differ from it, into every result.

list   shows the manifests of the package
build  computes a manifest from the tasks of an environment, such as downloaded games, and writes it to FILE; its id is
       the file's name
check  computes a manifest again from the files here and names the tasks that differ; exit status 1 if there are any.
       No code from a manifest file is run: an environment of your own (module:attribute) is imported only if --env
       names it, too. Real games are read from $ALFWORLD_DATA, WebShop's files from $WEBSHOP_DATA, unless
       environment.options.data_dir is given.

examples:
  hgpo manifest list
  hgpo manifest check alfworld-valid_seen-1
  hgpo manifest check webshop-test-1 environment.options.data_dir=~/webshop
  hgpo manifest build --env alfworld --split valid_unseen -o alfworld-valid_unseen-1.json
  hgpo manifest build --env alfworld --split valid_seen environment.options.size=full -o full-valid_seen-1.json
"""
SHOWN = 20
"""Maximum number of tasks that `check` names."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("action", choices=("list", "build", "check"), help="see above")
    parser.add_argument(
        "words",
        nargs="*",
        default=[],
        metavar="FILE|ID|environment.options.name=value",
        help="check: the manifest; check and build: settings of the environment",
    )
    parser.add_argument("--env", metavar="NAME", help="the environment: alfworld, webshop, …; check: only for your own")
    parser.add_argument("--split", help="build: the split")
    parser.add_argument("--about", default="", metavar="TEXT", help="build: a description")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="build: the file to write")
    parser.add_argument("--force", action="store_true", help="build: overwrite FILE")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command."""
    given = {"--env": arguments.env, "--split": arguments.split, "-o": arguments.output}
    if arguments.action == "build":
        if missing := [name for name, value in given.items() if value is None]:
            raise ValueError(f"build needs {', '.join(missing)}")
        return _build(arguments)
    if arguments.action == "check":
        del given["--env"]
    if unused := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"{', '.join(unused)}: only for build")
    if arguments.action == "check":
        return _check(arguments.words, arguments.env)
    if arguments.words:
        raise ValueError(f"list takes no arguments, got {arguments.words[0]!r}")
    return _list()


def _list() -> int:
    from hgpo.evaluation.manifests import manifests

    for name, manifest in manifests().items():
        sys.stdout.write(f"{name:<29}{len(manifest.tasks):>6,} tasks  {manifest.description}\n")
    return 0


def _build(arguments: argparse.Namespace) -> int:
    from hgpo.cli import check_output
    from hgpo.evaluation.manifests import build_manifest, write_manifest

    if arguments.output.suffix != ".json":
        raise ValueError(f"--output {arguments.output}: the name must end in .json")
    check_output(arguments.output, overwrite=arguments.force)
    options, name = _options(arguments.words), arguments.output.stem
    manifest = build_manifest(name, arguments.env, arguments.split, options, arguments.about)
    write_manifest(arguments.output, manifest)
    sys.stdout.write(f"{len(manifest.tasks):,} tasks in {arguments.output}\n")
    return 0


def _check(words: list[str], environment: str | None) -> int:
    from hgpo.evaluation.manifests import check_manifest, manifest_named
    from hgpo.utils.text import counted, visible

    if not words:
        raise ValueError("check needs the file of a manifest, or an id of `hgpo manifest list`")
    manifest = manifest_named(words[0])
    differences = check_manifest(manifest, _options(words[1:]), environment)
    for task, difference in list(differences.items())[:SHOWN]:
        sys.stdout.write(f"{visible(task)}: {difference}\n")
    if not differences:
        sys.stdout.write(f"{visible(manifest.id)}: equal, {counted(len(manifest.tasks), 'task')}\n")
        return 0
    further = f"; {SHOWN} are shown" if len(differences) > SHOWN else ""
    sys.stdout.write(f"{visible(manifest.id)}: {counted(len(differences), 'difference')}{further}\n")
    return 1


def _options(overrides: list[str]) -> dict[str, object]:
    """The environment's options from `overrides`."""
    from hgpo.cli import parse_given

    if others := [word for word in overrides if not word.startswith("environment.options.")]:
        raise ValueError(f"{others[0]!r} determines no task; only environment.options.name=value is accepted here")
    options: dict[str, object] = parse_given(overrides).get("environment", {}).get("options", {})
    return options
