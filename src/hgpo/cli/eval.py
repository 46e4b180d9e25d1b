"""`hgpo eval`: success of a run's policy, of a model, or of a served model on an evaluation set."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hgpo.cli import TRUST_HELP, amount, check_output

if TYPE_CHECKING:
    from hgpo.config import Config
    from hgpo.utils.progress import Reporter

DESCRIPTION = """\
Evaluate a policy on a split: each task is played exactly once per seed. Prints success with a 95 % interval, overall
and per task type. Evaluations during training give a policy the same figures as this command.

A run's policy is evaluated as it was trained, and the result goes to RUN/evaluations/. A model is a folder, a .gguf
file or a hub name; with --server it is the name of a model behind any server that speaks OpenAI's chat protocol. A
model needs an agent: direct (one prompt per step, with the last K steps), react (a thought before every
action, the whole history in the prompt), reflexion (react, with several attempts at a lost task), tools (tool calls,
for environments with tools), or one of your own. A run's policy can be evaluated with any of them, too.

The result names the manifest that its tasks belong to (`hgpo manifest list`), and tasks that differ from it, such as
another game file under the same id.

With -o the result goes to that file, every step to NAME.rollouts.jsonl for `hgpo inspect`, and every task to
NAME.games.jsonl as soon as it has ended. The same command resumes an interrupted evaluation, with or without -o.

A server's key is read from the environment variable OPENAI_API_KEY (policy.options.key_variable names another).

examples:
  hgpo eval runs/quickstart --split valid_unseen --seeds 123 456 789
  hgpo eval runs/quickstart --checkpoint start          the policy before training
  hgpo eval HuggingFaceTB/SmolLM2-135M-Instruct --env alfworld --agent react --games 24 -o smollm2.json
  hgpo eval my-model --server http://127.0.0.1:8000/v1 --env webshop --agent direct -o direct.json
  hgpo eval gpt-5-mini --server https://api.openai.com/v1 --env alfworld --agent react -o mini.json --prices 0.25 2
  hgpo compare direct.json smollm2.json                 one table of all
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("policy", metavar="RUN_OR_MODEL", help="a run directory, or a model")
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.name=value", help="settings, applied last")
    parser.add_argument("--env", metavar="NAME", help="environment of a model: alfworld, webshop, …")
    parser.add_argument("--server", metavar="URL", help="base address of the model's server")
    parser.add_argument("--agent", help="direct, react, reflexion, tools, … (default: direct, or that of the run)")
    parser.add_argument("--split", help="split (default: the run's evaluation split; valid_unseen for a model)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="each task is played once per seed (default: the run's; 123 for a model)"
    )
    parser.add_argument("--temperature", type=float, help="sampling temperature (default: the run's; 0.4 for a model)")
    parser.add_argument("--games", type=int, metavar="N", help="only the first N tasks")
    parser.add_argument(
        "--checkpoint", default="newest", help="of a run: newest, start, or an update's number (default: newest)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="file of the result")
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite FILE and NAME.rollouts.jsonl even without a log of an evaluation",
    )
    parser.add_argument(
        "--at-once", type=int, metavar="N", help="most concurrent tasks (default: 64 with --server, else 256)"
    )
    parser.add_argument(
        "--prices",
        type=amount,
        nargs=2,
        metavar=("PROMPT", "RESPONSE"),
        help="prices of a million prompt and response tokens; the result then has the cost",
    )
    parser.add_argument("--max-cost", type=amount, help="stop at this cost (needs --prices); the same command resumes")
    parser.add_argument("--trust", action="store_true", help=TRUST_HELP)
    parser.add_argument("--quiet", action="store_true", help="print errors only")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command."""
    _check_arguments(arguments)
    from hgpo.runs.load_settings import as_overrides, is_run, settings_for
    from hgpo.utils.progress import Reporter

    reporter = Reporter(quiet=arguments.quiet)
    given = {
        "agent.name": arguments.agent,
        "evaluation.split": arguments.split,
        "evaluation.seeds": arguments.seeds,
        "evaluation.temperature": arguments.temperature,
        "evaluation.games": arguments.games,
    }
    config = settings_for(
        arguments.policy,
        environment=arguments.env,
        server=arguments.server,
        overrides=[*as_overrides(given), *arguments.overrides],
        trusted=arguments.trust,
        say=reporter.say,
    )
    plays_run = arguments.server is None and is_run(arguments.policy)
    if arguments.checkpoint != "newest" and not plays_run:
        raise ValueError(
            f"--checkpoint {arguments.checkpoint}: {arguments.policy} is not a run, and only runs have them"
        )
    if arguments.output is None:
        if not plays_run:
            raise ValueError("-o FILE.json is needed: without a run directory the result has no default path")
        if arguments.agent is not None or arguments.overrides:
            raise ValueError("-o FILE.json is needed: with changed settings the result does not belong to the run")
    return _evaluate(arguments, config, reporter)


def _check_arguments(arguments: argparse.Namespace) -> None:
    if arguments.output is not None:
        if arguments.output.suffix != ".json":
            raise ValueError(f"--output {arguments.output}: the name must end in .json")
        from hgpo.evaluation.eval_log import log_path, rollouts_path

        is_continued = log_path(arguments.output).exists()  # `EvalLog` rejects the log of another evaluation
        for path in (arguments.output, rollouts_path(arguments.output)):
            check_output(path, overwrite=arguments.force or is_continued)
    if arguments.at_once is not None and arguments.at_once < 1:
        raise ValueError(f"--at-once {arguments.at_once}: must be at least 1")
    if arguments.max_cost is not None and not arguments.prices:
        raise ValueError("--max-cost needs --prices: without prices the cost is unknown")


def _evaluate(arguments: argparse.Namespace, config: Config, reporter: Reporter) -> int:
    from hgpo.assemble import build_evaluator, build_suite, open_policy
    from hgpo.evaluation.eval_history import name_by_command
    from hgpo.evaluation.eval_log import rollouts_path
    from hgpo.evaluation.evaluator import NO_LIMIT, EvalBudget
    from hgpo.evaluation.summary import print_evaluation
    from hgpo.policies.wrappers import FREE, Prices
    from hgpo.runs.checkpoints import files_digest
    from hgpo.runs.folder import RunDirectory
    from hgpo.runs.load_settings import is_run
    from hgpo.utils.files import exclusive_path
    from hgpo.utils.text import counted

    served = config.policy.backend == "server"
    if not served and not is_run(arguments.policy):
        from hgpo.training.load import check_model  # loads PyTorch, which a server's policy does not need

        check_model(config.policy)  # before tasks are generated for it
    suite = build_suite(config.environment, config.evaluation)
    telling = {"warn": reporter.warn, "say": reporter.say}
    opened = open_policy(arguments.policy, config, arguments.checkpoint, **telling)
    played = config.evaluation
    name = name_by_command(played.split, opened.checkpoint, played.temperature, played.seeds, arguments.games)
    output = arguments.output or RunDirectory(Path(arguments.policy)).evaluation(name)
    prices = Prices(*arguments.prices) if arguments.prices else FREE
    at_once = arguments.at_once or (64 if served else NO_LIMIT.max_concurrency)
    budget = EvalBudget(prices, arguments.max_cost, at_once)
    evaluator = build_evaluator(config, suite, reporter, budget=budget)
    weights, model = opened.weights, Path(config.policy.model)
    if not (weights or served) and model.exists():
        weights = files_digest(model)
    if weights:  # another run or model may have had the same name
        evaluator = replace(evaluator, settings={**evaluator.settings, "weights": weights})
    keep_steps = arguments.output is not None
    with exclusive_path(output):
        stored = evaluator.evaluate(opened.policy, output, model=opened.name, keep_going=True, keep_steps=keep_steps)
    if stored is None:
        return 1
    if not arguments.quiet:
        print_evaluation(reporter.console, stored.evaluation)
    for failure in stored.failures[:10]:
        reporter.say(f"  failed: {failure.task} (seed {failure.seed}): {failure.reason}")
    if stored.failed:
        failed = counted(stored.failed, "failed episode")
        reporter.say(f"{failed}, not counted in success; the same command retries what failed")
    if stored.manifest is not None:
        reporter.say(f"Manifest of the tasks: {stored.manifest}")
    steps = f"; see the steps with `hgpo inspect {shlex.quote(str(rollouts_path(output)))}`" if keep_steps else ""
    reporter.say(f"Stored in {output}{steps}")
    return 0
