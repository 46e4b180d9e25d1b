"""`hgpo eval`: held-out success of a run's policy, of any model, or of a served one, through any agent."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hgpo.cli import TRUST_HELP

if TYPE_CHECKING:
    from hgpo.config import Config
    from hgpo.utils.progress import Reporter

DESCRIPTION = """\
Play a split: each game exactly once per seed. Prints success with a 95 % interval, overall and per task type.

A run's policy is played as it was trained, and the figures go to RUN/evaluations/. A model is a folder, a .gguf file or
a hub name; with --server it is the name of a model behind any server that speaks OpenAI's chat protocol. It is asked
through an agent: direct (each step a prompt of its own, with the last K steps), react (a thought before every action,
the whole history in sight), reflexion (react, with several attempts at a lost game), or one of your own. A run's policy
can be played through any of them, too.

With -o the figures go to that file, every step to NAME.rollouts.jsonl for `hgpo inspect`, every game to
NAME.games.jsonl as soon as it has ended: the same command goes on where it was stopped.

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
    """Arguments of the verb."""
    parser.description = DESCRIPTION
    parser.add_argument("policy", metavar="RUN_OR_MODEL", help="a run directory, or a model")
    parser.add_argument("overrides", nargs="*", metavar="section.name=value", help="settings, applied last")
    parser.add_argument("--env", metavar="NAME", help="environment that a model plays: alfworld, webshop, …")
    parser.add_argument("--server", metavar="URL", help="base address of the server that has the model")
    parser.add_argument("--agent", help="direct, react, reflexion, … (default: direct, or as the run was trained)")
    parser.add_argument("--split", help="split to play (default: the run's evaluation split, or valid_unseen)")
    parser.add_argument("--seeds", type=int, nargs="+", help="the split is played once per seed (default: the run's)")
    parser.add_argument("--temperature", type=float, help="sampling temperature (default: the run's, 0.4)")
    parser.add_argument("--games", type=int, help="only the first so many games")
    parser.add_argument("--checkpoint", default="newest", help="newest, start, or an update's number (default: newest)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="where the figures of a model go")
    parser.add_argument("--at-once", type=int, default=64, metavar="N", help="most games under way (default: 64)")
    parser.add_argument(
        "--prices", type=float, nargs=2, metavar=("PROMPT", "RESPONSE"), help="of a million tokens each: gives the cost"
    )
    parser.add_argument("--max-cost", type=float, help="stop once so much was spent; the same command goes on")
    parser.add_argument("--trust", action="store_true", help=TRUST_HELP)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    _refuse_mistakes(arguments)
    from hgpo.runs import load_settings as asking
    from hgpo.utils.progress import Reporter

    reporter = Reporter(quiet=arguments.quiet)
    is_run = arguments.server is None and asking.is_run(arguments.policy)
    config = _settings(arguments, reporter)
    if is_run and arguments.output is None:
        return _evaluate_run(arguments, config, reporter)
    if arguments.output is None:
        raise ValueError("-o FILE.json is needed: there is no run whose folder the figures could go to")
    return _evaluate_prompted(arguments, config, reporter)


def _refuse_mistakes(arguments: argparse.Namespace) -> None:
    if arguments.output is not None and arguments.output.suffix != ".json":
        raise ValueError(f"--output {arguments.output}: the name ends in .json")
    if arguments.at_once < 1:
        raise ValueError(f"--at-once {arguments.at_once}: at least one game must be played at a time")
    if arguments.max_cost is not None and not arguments.prices:
        raise ValueError("--max-cost needs --prices: nobody knows else what tokens cost")


def _settings(arguments: argparse.Namespace, reporter: Reporter) -> Config:
    from hgpo.runs.load_settings import as_overrides, settings_for

    given = {
        "agent.name": arguments.agent,
        "evaluation.split": arguments.split,
        "evaluation.seeds": arguments.seeds,
        "evaluation.temperature": arguments.temperature,
        "evaluation.games": arguments.games,
    }
    overrides = [*as_overrides(given), *arguments.overrides]
    return settings_for(
        arguments.policy,
        environment=arguments.env,
        server=arguments.server,
        overrides=overrides,
        trusted=arguments.trust,
        say=reporter.say,
    )


def _evaluate_run(arguments: argparse.Namespace, config: Config, reporter: Reporter) -> int:
    """The policy of a run, as it was trained; stored in the run."""
    from hgpo.assemble import build_evaluator, build_suite, run_policies
    from hgpo.evaluation.summary import print_evaluation
    from hgpo.runs.folder import RunDirectory
    from hgpo.training.load import use_threads

    if arguments.agent is not None or arguments.overrides:
        raise ValueError("-o FILE.json is needed: with other settings these are no figures of the run")
    run_directory = RunDirectory(Path(arguments.policy))
    use_threads(config.run.threads)
    suite = build_suite(config.environment, config.evaluation)
    policy, checkpoint = run_policies(run_directory, config).policy(arguments.checkpoint)
    settings = config.evaluation
    name = f"{settings.split}-{checkpoint}-t{settings.temperature:g}-s{'-'.join(map(str, settings.seeds))}"
    if arguments.games is not None:
        name += f"-first{arguments.games}"  # beside the whole panel's, not in its place
    evaluator = build_evaluator(config, suite, reporter)
    stored = evaluator.evaluate(policy, run_directory.evaluation(name), model=checkpoint)
    if stored is not None and not arguments.quiet:
        print_evaluation(reporter.console, stored.evaluation)
    reporter.say(f"Stored in {run_directory.evaluation(name)}")
    return 0


def _evaluate_prompted(arguments: argparse.Namespace, config: Config, reporter: Reporter) -> int:
    """Any policy through an agent; stored where the command line says."""
    from hgpo.assemble import agent_rules, build_agent, build_suite, evaluation_tasks, open_policy
    from hgpo.evaluation.agent_eval import Terms, evaluate_prompted
    from hgpo.evaluation.eval_log import rollouts_beside
    from hgpo.evaluation.eval_runs import describe
    from hgpo.evaluation.summary import print_evaluation
    from hgpo.policies.pricing import FREE, Prices
    from hgpo.runs.load_settings import is_run
    from hgpo.training.load import check_model

    if config.policy.backend != "server" and not is_run(arguments.policy):
        check_model(config.policy)  # before games are generated for it
    suite = build_suite(config.environment, config.evaluation)
    agent = build_agent(config.agent, config.environment.name)
    policy, model = open_policy(arguments.policy, config, arguments.checkpoint)
    prices = Prices(*arguments.prices) if arguments.prices else FREE
    terms = Terms(prices, arguments.max_cost, arguments.at_once)
    tasks = evaluation_tasks(suite, config.evaluation)
    rules = agent_rules(config.rollout, agent, config.evaluation.temperature)
    stored = evaluate_prompted(
        arguments.output, policy, tasks, agent, rules, config, reporter, model=model, terms=terms
    )
    if stored is None:
        return 1
    if not arguments.quiet:
        print_evaluation(reporter.console, stored.evaluation)
    reporter.say(f"{model}, {config.agent.name}: {describe(stored.evaluation)}")
    for failure in stored.failures[:10]:
        reporter.say(f"  failed: {failure.task} (seed {failure.seed}): {failure.reason}")
    if stored.failed:
        reporter.say(f"{stored.failed} games failed and are not counted; the same command plays them again")
    reporter.say(f"Stored in {arguments.output}; see the steps with `hgpo inspect {rollouts_beside(arguments.output)}`")
    return 0
