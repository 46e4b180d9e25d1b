"""OpenEnv's protocol, both ways: our environments served to its clients, and its servers as environments.

JSON texts over a WebSocket, one session a connection: `reset`, `step`, `state`, `close`. See docs/environments.md.
"""
