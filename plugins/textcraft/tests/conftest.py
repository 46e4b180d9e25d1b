"""The tests need the package: `pip install -e plugins/textcraft`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("hgpo_textcraft") else ["test_*.py"]
