"""The tests need the package: `pip install -e plugins/backoffice`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("hgpo_backoffice") else ["test_*.py"]
