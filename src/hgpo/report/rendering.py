"""Writes the report as one HTML file with data, scripts and style, and a policy that blocks all other code.

Texts of models and environments reach the page only inside the packed data and are put into it as text nodes. If
one were still parsed as markup, three measures protect the reader: the Content-Security-Policy allows only the two
scripts and the style, by their digests; Trusted Types reject any string as HTML; the page cannot load anything.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Template

from hgpo.messages import encodable
from hgpo.report.charts import VEGA_MISSING
from hgpo.report.document import packed_report
from hgpo.report.report import Report
from hgpo.utils.text import counted

MAX_BYTES = 5_000_000
MARKER = "<!doctype html>\n<!-- hgpo inspect -->"
SCRIPTS = (
    *("bytes.js", "data.js", "dom.js", "diff.js", "vega.js", "tables.js", "run.js", "overview.js"),
    *("graph.js", "task.js", "step.js", "compare.js", "consistency.js", "find.js", "main.js"),
)


def fitting_page(report: Report, limit: int = MAX_BYTES) -> tuple[str, Report]:
    """The page and the report it shows, with as many of its tasks as fit into `limit` bytes.

    Raises:
        ValueError: not even one task fits, or packages of the extra `report` are missing.
    """
    fixed = len(page_of(report.source, "").encode("utf-8"))
    while True:
        page = page_of(report.source, packed_report(report))
        size = len(page.encode("utf-8"))
        if size <= limit:
            return page, report
        if len(report.samples) <= 1 or limit <= fixed:
            shown = counted(len(report.samples), "task")
            raise ValueError(f"the report is {size:,} bytes even with {shown}; the limit is {limit:,}")
        report = report.thinned(min(0.97 * (limit - fixed) / (size - fixed), 0.97))


def page_of(title: str, data: str) -> str:
    """A page with packed data; the data decides which views the page has."""
    style = _asset("style.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"
    library = chart_library()
    policy = content_security_policy((library, script), style)
    return Template(_asset("page.html")).substitute(
        marker=MARKER,
        policy=html.escape(policy),
        title=html.escape(encodable(f"{title} · hgpo inspect")),
        style=style,
        library=library,
        script=script,
        data=data,
    )


def content_security_policy(scripts: Sequence[str], style: str) -> str:
    """A policy that allows only these scripts and this style, and no request."""
    allowed = " ".join(map(_digest, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; connect-src 'none'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types default"
    )


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and vega-embed as one script, from vl-convert; nothing is downloaded.

    Raises:
        ValueError: vl-convert is not installed, or its bundle could end a script tag.
    """
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise ValueError(VEGA_MISSING) from error
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in bundle.lower() or "<!--" in bundle:
        raise ValueError("the chart library of this vl-convert-python cannot be embedded in HTML; install >=1.8")
    return bundle


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def _asset(name: str) -> str:
    return (files("hgpo.report") / "page" / name).read_text(encoding="utf-8")
