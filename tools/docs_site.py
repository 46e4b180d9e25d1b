"""Hooks of mkdocs.yml for the documentation site, which `make docs` builds.

Links in the documentation are written for a forge, which shows the whole repository. The site is built from `docs/`, so
every file outside `docs/` that a page links to becomes a page under `repository/`, and so do the files that such a page
links to. Notebooks become pages, formulas become MathML, and no page may load anything from another site.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository/"
"""The site's folder for pages of files outside docs/."""
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash", ".txt": "text", "": "text"}
_LARGEST = 100_000
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
_CODE = re.compile(  # a fence, a span, or lines that are indented after an empty one
    r"^(`{3,}|~{3,})[\s\S]*?^\1\s*$|`[^`\n]+`|(?:(?<=\n\n)|\A)(?:(?: {4}|\t).*\n?|\n(?= {4}))+", re.MULTILINE
)
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_FETCHED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^>]*>')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace patterns in the navigation, such as `decisions/*.md`, by the pages that match."""
    config.nav = _written_out(config.nav, set(_named(config.nav)))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files as pages; a notebook is replaced by its page."""
    from mkdocs.structure.files import File, InclusionLevel

    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
    text = {file.src_uri: file.content_string for file in files if file.src_uri.endswith(".md")}
    missing = list(_named(config.nav))
    for page, markdown in text.items():
        missing += linked(page, markdown)
    while missing:
        wanted = missing.pop()
        path = ROOT / repository_path(wanted)
        if wanted in text or files.get_file_from_path(wanted) is not None or not path.exists():
            continue
        if path.suffix in {".png", ".svg"}:
            files.append(File.generated(config, wanted, abs_src_path=str(path)))
            continue
        text[wanted] = as_markdown(path)
        level = InclusionLevel.NOT_IN_NAV  # only a page of docs/ has to be named there
        files.append(File.generated(config, wanted, content=text[wanted], inclusion=level))
        missing += linked(wanted, text[wanted])
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point the links at the site's pages, and remove comments, which would end tables."""
    return with_links(page.file.src_uri, _COMMENT.sub("", markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw by themselves."""
    from latex2mathml.converter import convert

    def drawn(found: re.Match[str]) -> str:
        formula = unescape(found[3]).strip()
        if found[2] == "(":
            return convert(formula)
        return f'<div class="formula">{convert(formula, display="block")}</div>'

    return _FORMULA.sub(drawn, html)


def on_post_build(config: MkDocsConfig) -> None:
    """Reject a page that loads anything from another site."""
    from mkdocs.exceptions import PluginError

    for page in sorted(Path(config.site_dir).rglob("*.html")):
        fetched = [tag for tag in _FETCHED.findall(page.read_text(encoding="utf-8")) if 'rel="canonical"' not in tag]
        if fetched:
            raise PluginError(f"{page}: this is fetched from elsewhere when the page is read: {fetched[0]}")


def repository_path(source: str) -> str:
    """The repository path of the file or folder whose page on the site is `source`.

    >>> [repository_path(name) for name in ("inspect.md", "repository/src/hgpo/cli/main.py.md", "decisions/README.md")]
    ['docs/inspect.md', 'src/hgpo/cli/main.py', 'docs/decisions']
    """
    path = source.removeprefix(OUTSIDE) if source.startswith(OUTSIDE) else f"docs/{source}"
    if (ROOT / path).exists():
        return path
    return path.removesuffix("/README.md") if path.endswith("/README.md") else path.removesuffix(".md")


def site_path(path: str) -> str:
    """The site's page of a file or folder of the repository; the inverse of `repository_path`.

    >>> [site_path(name) for name in ("docs/inspect.md", "src/hgpo/cli/main.py", "docs/decisions", "recipes")]
    ['inspect.md', 'repository/src/hgpo/cli/main.py.md', 'decisions/README.md', 'repository/recipes/README.md']
    """
    if (ROOT / path).is_dir():
        path = f"{path}/README.md"
    elif Path(path).suffix not in {".md", ".png", ".svg"}:
        path = f"{path}.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else OUTSIDE + path


def with_links(page: str, markdown: str) -> str:
    """The page's Markdown, with links to files of the repository replaced by links to the site's pages."""

    def turned(found: re.Match[str]) -> str:
        target = _target(page, found[2])
        if target is None:
            return found[0]
        return f"{found[1]}{posixpath.relpath(target, posixpath.dirname(page) or '.')}{found[3] or ''}{found[4]}"

    return _outside_code(markdown, lambda text: _LINK.sub(turned, text))


def linked(page: str, markdown: str) -> Iterator[str]:
    """The site's pages to which a page links."""
    for found in _LINK.finditer(_CODE.sub("", markdown)):
        if (target := _target(page, found[2])) is not None:
            yield target


def as_markdown(path: Path) -> str:
    """A file or folder of the repository as a page."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        if (path / "README.md").exists():
            return (path / "README.md").read_text(encoding="utf-8")
        listed = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith((".", "_"))]
        return f"# {name}\n\n" + "\n".join(f"- [{_title(entry)}]({entry.name})" for entry in listed) + "\n"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # weights of a stored policy, for example
        return f"# {name}\n\n{path.stat().st_size:,} bytes that are not text; read the file in the repository.\n"
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return notebook_as_markdown(json.loads(text))
    if len(text) > _LARGEST:
        return f"# {name}\n\n{len(text):,} characters; read it in the repository.\n"
    return f"{_UNSEARCHED}# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n"


def notebook_as_markdown(notebook: dict[str, Any]) -> str:
    """The cells of a notebook, code as code; outputs are not kept in the repository.

    >>> notebook_as_markdown({"cells": [{"cell_type": "code", "source": ["1 + ", "1"]}]})
    '```python\\n1 + 1\\n```\\n'
    """
    cells = [(cell["cell_type"], "".join(cell["source"]).strip()) for cell in notebook["cells"]]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells) + "\n"


def _target(page: str, link: str) -> str | None:
    """The site's page to which a link of `page` leads; None if the target is not in the repository."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_written_at(page)), link))
    return site_path(path) if not path.startswith("..") and os.path.exists(ROOT / path) else None


def _written_at(page: str) -> str:
    """The repository path to which a page's links are relative; the page of a folder is in that folder."""
    path = repository_path(page)
    return f"{path}/README.md" if (ROOT / path).is_dir() else path


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the text outside code."""
    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [change(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(markdown[end:])])


def _title(path: Path) -> str:
    if path.suffix == ".md":
        found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return found[1] if found else path.name
    return path.name


def _written_out(nav: Any, named: set[str]) -> Any:
    """The navigation with each pattern replaced by the pages that match it, except the `named` ones."""
    if isinstance(nav, dict):
        return {title: _written_out(below, named) for title, below in nav.items()}
    if not isinstance(nav, list):
        return nav
    written: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            pages = [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").glob(entry))]
            written += [page for page in pages if page not in named]
        else:
            written.append(_written_out(entry, named))
    return written


def _named(nav: Any) -> Iterator[str]:
    """Every page that the navigation names."""
    if isinstance(nav, str):
        yield nav
    else:
        for below in nav.values() if isinstance(nav, dict) else nav or ():
            yield from _named(below)
