"""One module per verb of the `hgpo` command: `configure(parser)` adds its arguments, `run(arguments)` does it."""
