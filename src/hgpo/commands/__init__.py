"""One module per verb of the `hgpo` command: `configure(parser)` adds its arguments, `run(arguments)` does it."""

TRUST_HELP = "of a run from elsewhere: import the modules that its settings name, which runs their code"
