"""OpenEnv's protocol: a server for this package's environments, and OpenEnv servers as environments.

JSON messages over a WebSocket, one session per connection: `reset`, `step`, `state`, `close`. See docs/environments.md.
"""
