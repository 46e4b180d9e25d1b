"""`hgpo serve-env`: serve an environment to trainers with an OpenEnv client."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from hgpo.cli import add_option_argument, parse_given

DESCRIPTION = """\
Serve an environment to OpenEnv's clients: a WebSocket at /ws, one session per connection, on 127.0.0.1 until Ctrl-C.
A reset selects a task by `task` (its number) and `split`, or by `seed`; without either, tasks are used in order. An
action is {"text": COMMAND}. docs/api/envs.md lists the options of hgpo's client.

examples:
  hgpo serve-env webshop
  hgpo serve-env alfworld --option data_dir=~/alfworld/data --split train
  hgpo serve-env webshop --port 8001 --max-sessions 64 --max-steps 15
  hgpo train --env openenv:http://127.0.0.1:8000 policy.model=MODEL evaluation.split=SPLIT
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from hgpo.envs.openenv.server import LOOPBACK, Limits

    limits = Limits()
    parser.description = DESCRIPTION
    parser.add_argument(
        "name",
        metavar="NAME",
        help="alfworld, webshop, an installed package's environment, or package.module:factory",
    )
    add_option_argument(parser, "environment")
    parser.add_argument("--split", help="serve only this split (default: all; resets without a split use the first)")
    parser.add_argument(
        "--max-steps", type=int, metavar="N", help="truncate episodes after N steps (default: no limit)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0: any free port (default: 8000)")
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--expose",
        action="store_true",
        help="allow a --host that other machines can reach: there is no password and no encryption",
    )
    for name, metavar, default, help_text in (
        ("--max-sessions", "N", limits.sessions, "most clients at the same time"),
        ("--max-message-bytes", "N", limits.message_bytes, "largest message of a client"),
        ("--idle-seconds", "S", limits.idle_seconds, "end a session after S seconds without a message"),
    ):
        help_text = f"{help_text} (default: {default:g})"
        parser.add_argument(name, type=type(default), default=default, metavar=metavar, help=help_text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    from hgpo.envs.openenv.protocol import is_loopback
    from hgpo.envs.openenv.server import EnvironmentServer, Limits, Served
    from hgpo.envs.registry import make
    from hgpo.envs.wrappers import LimitedSuite

    if not arguments.expose and not is_loopback(arguments.host):
        raise ValueError(
            f"--host {arguments.host} can be reached by other machines, without a password or encryption; add --expose "
            "to allow that"
        )
    if not 0 <= arguments.port < 1 << 16:
        raise ValueError(f"--port {arguments.port}: ports are 1 to 65535, or 0 for any free port")
    if arguments.max_steps is not None and arguments.max_steps < 1:
        raise ValueError(f"--max-steps {arguments.max_steps}: must be at least 1; omit it for no limit")
    limits = Limits(arguments.max_sessions, arguments.max_message_bytes, arguments.idle_seconds)
    if find_spec("websockets") is None:  # asked before games are generated
        raise ValueError("serving needs the package websockets: pip install 'hgpo[openenv]'")
    options = parse_given(arguments.option)
    suite = LimitedSuite(make(arguments.name, **options), arguments.max_steps or sys.maxsize)
    served = Served(arguments.name, suite, (arguments.split,) if arguments.split else suite.splits)
    _serve(EnvironmentServer(served, limits), served, arguments.host, arguments.port)
    return 0


def _serve(server, served, host: str, port: int) -> None:  # type: ignore[no-untyped-def]
    """Serve until SIGINT or SIGTERM, which end it between two steps."""
    import asyncio
    import signal

    async def serve() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with server.listening(host, port) as address:
            sizes = ", ".join(f"{size:,} of {split}" for split, size in served.sizes.items())
            sys.stdout.write(f"{served.name} at {address}: tasks {sizes} (Ctrl-C ends)\n")
            sys.stdout.flush()
            await stopped.wait()

    asyncio.run(serve())
