"""`python -m hgpo` is the `hgpo` command."""

import sys

from hgpo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
