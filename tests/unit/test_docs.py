"""Documentation that contains code, commands or names is checked against what it speaks of."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

import readme
from hgpo.config import load_config

ROOT = Path(__file__).parents[2]
ABOUT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*ABOUT, *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/**/*.md"), *ROOT.glob("plugins/**/*.md")]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"``{language}\n(.*?)``", path.read_text(encoding="utf-8"), re.DOTALL)


def test_the_environment_page_shows_the_environment_that_is_tested():
    shown = blocks(ROOT / "docs/environments.md", "python")[0]
    assert shown.strip() in (ROOT / "tests/corridor.py").read_text(encoding="utf-8")


def test_the_readmes_example_prints_what_it_says():
    [example] = readme.examples()
    done = subprocess.run([sys.executable, "-c", example.code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(example.prints)
    assert len(set(example.prints)) == 3


def test_the_readmes_badges_say_what_the_package_says():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"img\.shields\.io/badge/(\w+)-((?:--|[^-)])+)-", text))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    says = {name: unquote(value.replace("--", "-")) for name, value in shown.items()}
    assert says == {"arXiv": "2602.22817", "python": project["requires-python"], "license": project["license"]}


@pytest.mark.parametrize("recipe", sorted(ROOT.glob("recipes/**/*.toml")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_recipe_is_valid(recipe):
    load_config(recipe)


GUIDES = (
    "quickstart", "concepts", "own-data", "environments", "language-models", "verl", "evaluation", "inspect",
    "choosing", "reporting", "prompts",
)  # fmt: skip


def test_pages_keep_their_length():
    """Readers get guides of 900 words at most, as `wc -w` counts them."""
    most = {ROOT / "README.md": 600, ROOT / "docs/algorithms/hgpo.md": 1000}
    most |= {ROOT / f"docs/{name}.md": 900 for name in GUIDES}
    most |= {ROOT / f"docs/{name}.md": 600 for name in ("alfworld", "webshop")}
    most |= dict.fromkeys(ROOT.glob("plugins/*/README.md"), 300)
    most = dict.fromkeys(ROOT.glob("docs/algorithms/*.md"), 400) | most
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in most}
    assert {str(page.relative_to(ROOT)): count for page, count in words.items() if count > most[page]} == {}


def test_examples_are_in_code_blocks():
    """Outside one, Markdown shows `>>>` as three nested quotations and joins the lines."""
    block = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    outside = {
        page.name: re.findall(r"^>>> .*", block.sub("", page.read_text("utf-8")), re.MULTILINE) for page in PAGES
    }
    assert {name: lines for name, lines in outside.items() if lines} == {}


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them: lower case, hyphens for spaces, no other punctuation."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def leads_somewhere(page: Path, target: str, anchor: str) -> bool:
    path = (page.parent / target) if target else page
    return path.exists() and (not anchor or anchor in anchors(path))


def test_links_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {target}#{anchor}"
        for page in [*PAGES, ROOT / "CHANGELOG.md"]
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))
        if not leads_somewhere(page, target, anchor)
    ]
    assert not broken


@pytest.mark.slow
def test_the_example_learns_and_agrees_with_the_library():
    code = "import hgpo_loop; won = hgpo_loop.main(updates=45); assert sum(won[-5:]) > 2 * sum(won[:5]), won"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "examples", check=True, stdout=subprocess.DEVNULL)
    assert len((ROOT / "examples/hgpo_loop.py").read_text().splitlines()) < 150


def test_the_repository_speaks_of_the_project_alone():
    """No path of a machine and no package registry's host in what is shipped."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ".yaml", ""} and path.is_file() and name != "LICENSE":
            text = path.read_text(encoding="utf-8", errors="replace")
            found = re.search("/(?:work|root|home)" + r"/\w+|py" + "pi" + r"\.(?:org|python)", text)
            assert not found, f"{name}: {found[0]}"
