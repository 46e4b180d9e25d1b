"""The shop's pages as plain HTML, for a person with a browser. Every text is escaped: a catalogue is untrusted."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from hgpo.envs.webshop.pages import Piece, PieceKind
from hgpo.envs.webshop.session import Session

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:46rem;margin:1rem auto;padding:0 1rem}button{margin:.1rem}"
    ".product{font-family:monospace}.chosen{font-weight:bold}"
)


def page(session: Session, path: str) -> str:
    """The page that `session` shows; its forms post `action`, or `words` to search for, to `path`."""
    body = "\n".join(_lines(session))
    if session.view.kind == "search":
        body += (
            '\n<p><input name="words" id="search_input" aria-label="Search" autofocus required> <button>Search</button>'
        )
    if session.purchase is not None:
        return document("Bought", f'{body}\n<p><a href="/">Shop again</a></p>')
    return document("Shop", f'<form method="post" action="{escape(path)}">\n{body}\n</form>')


def document(title: str, body: str) -> str:
    """A whole HTML document around `body`, which is HTML already; `title` is text."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _lines(session: Session) -> Iterator[str]:
    for piece in session.pieces:
        if piece.text.strip() and not (session.view.kind == "search" and piece.kind is PieceKind.BUTTON):
            yield _line(piece, session)


def _line(piece: Piece, session: Session) -> str:
    text = escape(piece.text)
    if piece.kind is PieceKind.PLAIN:
        return f"<p>{text}</p>"
    argument = piece.text if piece.kind is PieceKind.OPTION else piece.text.lower()
    kind = {PieceKind.PRODUCT: "product", PieceKind.OPTION: "option", PieceKind.BUTTON: "button"}[piece.kind]
    if piece.kind is PieceKind.OPTION and session.view.chosen.get(piece.name) == piece.text:
        kind += " chosen"
    # Enter in the search field must not press the first button, so only that page has a button without a value.
    return f'<button class="{kind}" name="action" value="{escape(f"click[{argument}]")}">{text}</button>'
