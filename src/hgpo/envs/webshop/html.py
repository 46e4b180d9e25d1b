"""The shop's pages as HTML, for a person with a browser. Every text is escaped: a catalogue is untrusted.

A page shows the strings of `pages.pieces`, all of them, as cards, prices and groups of options; `shop.css` dresses it.
There are no pictures and no scripts: nothing is fetched, and what looks like a picture is a letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from hgpo.envs.webshop.pages import BUY, SUB_PAGES, Piece, PieceKind
from hgpo.envs.webshop.session import Session

_COLOUR_NAMES = """
beige black blue brown coral crimson cyan gold gray green grey indigo ivory khaki lavender lime magenta maroon navy
olive orange orchid pink plum purple red salmon silver tan teal tomato turquoise violet wheat white yellow
"""
_COLOURS = frozenset(_COLOUR_NAMES.split())
"""Names that CSS knows; an option that is or begins with one shows it."""
_SCORE = "Your score (min 0.0, max 1.0)"


def page(session: Session, path: str) -> str:
    """The page that `session` shows; its forms post `action`, or `words` to search for, to `path`."""
    seen = [piece for piece in session.pieces if piece.text.strip()]
    body = "\n".join({"results": _results, "item": _item, "done": _done}.get(session.view.kind, _text)(seen, session))
    if session.purchase is not None:
        return document("Bought", f'{body}\n<p><a href="/">Shop again</a></p>')
    return document("Shop", f'<form method="post" action="{escape(path)}">\n{body}\n</form>')


def document(title: str, body: str) -> str:
    """A whole HTML document around `body`, which is HTML already; `title` is text."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<style>{_style()}</style></head>\n<body>\n<header class="bar">WebShop</header>\n<main>\n{body}\n</main>\n'
        "</body></html>\n"
    )


@cache
def _style() -> str:
    return (files("hgpo.envs.webshop") / "shop.css").read_text(encoding="utf-8")


def _head(seen: Sequence[Piece], session: Session) -> tuple[str, list[Piece]]:
    """What every page begins with, the goal and the way back, and the pieces that are left."""
    rest = list(seen)
    told = [rest.pop(0) for _ in range(2)]  # "Instruction:" and what is wanted
    goal = "".join(_paragraph(piece) for piece in told)
    where = []
    while rest and (rest[0].kind is PieceKind.BUTTON or rest[0].text.startswith("Page ")) and rest[0].text != BUY:
        where.append(rest.pop(0))
    return f'<section class="goal">{goal}</section>\n<nav class="where">{_all(where, session)}</nav>', rest


def _results(seen: Sequence[Piece], session: Session) -> Iterator[str]:
    """A card a product: a letter for a picture, title, price, and the button that names it."""
    head, rest = _head(seen, session)
    yield f'{head}\n<div class="cards">'
    while rest:
        number = next((at for at, piece in enumerate(rest[1:], 1) if piece.kind is PieceKind.PRODUCT), len(rest))
        card, rest = rest[:number], rest[number:]
        title = card[1].text if len(card) > 1 else ""
        texts = "".join(_paragraph(piece, "price" if place == 1 else "title") for place, piece in enumerate(card[1:]))
        yield f'<article class="card">{_picture(title, card[0].text)}{texts}{_button(card[0], session)}</article>'
    yield "</div>"
    if not session.view.products:
        yield '<p class="nothing">No products on this page.</p>'


def _item(seen: Sequence[Piece], session: Session) -> Iterator[str]:
    """A product: options in groups, each with its name, and what can be read or done."""
    head, rest = _head(seen, session)
    product = session.view.product
    groups: list[tuple[Piece, list[Piece]]] = []
    texts, buttons = [], []
    for piece, following in zip(rest, [*rest[1:], None], strict=True):
        if piece.kind is PieceKind.OPTION:
            groups[-1][1].append(piece)
        elif piece.kind is PieceKind.BUTTON:
            buttons.append(piece)
        elif following is not None and following.kind is PieceKind.OPTION:
            groups.append((piece, []))
        else:
            texts.append(piece)
    picture = _picture(product.title, product.asin) if product else ""
    yield f'{head}\n<div class="item">{picture}<section class="card">'
    for place, piece in enumerate(texts):
        yield _paragraph(piece, ("title", "price", "")[min(place, 2)])
    for name, values in groups:
        options = _all(values, session)
        yield f'<fieldset><legend>{escape(name.text)}</legend><div class="values">{options}</div></fieldset>'
    yield f'<div class="more">{_all([piece for piece in buttons if piece.text in SUB_PAGES], session)}</div>'
    yield _all([piece for piece in buttons if piece.text not in SUB_PAGES], session)
    yield "</section></div>"


def _text(seen: Sequence[Piece], session: Session) -> Iterator[str]:
    """The search page, and what can be read about a product."""
    if session.view.kind == "search":
        title, *told = [piece for piece in seen if piece.kind is PieceKind.PLAIN]
        goal = "".join(map(_paragraph, told))
        yield f'<h1>{escape(title.text)}</h1><section class="goal">{goal}</section>'
        # Enter in the search field must not press a button with a value, so this page has none.
        field = '<input name="words" id="search_input" aria-label="Search" autofocus required>'
        yield f'<p class="search">{field} <button>Search</button></p>'
        return
    head, rest = _head(seen, session)
    text = _all(rest, session) or '<p class="nothing">Nothing is said here.</p>'
    yield f'{head}\n<section class="card">{text}</section>'


def _done(seen: Sequence[Piece], session: Session) -> Iterator[str]:
    """The score, and below it what else the published simulator says, most of which it leaves empty."""
    texts = [piece.text for piece in seen]
    at = texts.index(_SCORE)
    score, rest = seen[at : at + 2], [*seen[1:at], *seen[at + 2 :]]
    yield f'<h1>{escape(texts[0])}</h1>\n<section class="card score">{_all(score, session)}</section>'
    yield f'<h2>Record</h2><section class="receipt">{_all(rest, session)}</section>'


def _all(pieces: Iterable[Piece], session: Session) -> str:
    return "\n".join(
        _paragraph(piece) if piece.kind is PieceKind.PLAIN else _button(piece, session) for piece in pieces
    )


def _paragraph(piece: Piece, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(piece.text)}</p>"


def _button(piece: Piece, session: Session) -> str:
    """What can be pressed, with the action that it stands for."""
    text, pressed, swatch = escape(piece.text), "", ""
    argument = piece.text if piece.kind is PieceKind.OPTION else piece.text.lower()
    kind = {PieceKind.PRODUCT: "product", PieceKind.OPTION: "option", PieceKind.BUTTON: "button"}[piece.kind]
    if piece.kind is PieceKind.OPTION:
        chosen = session.view.chosen.get(piece.name) == piece.text
        kind += " chosen" if chosen else ""
        pressed = f'aria-pressed="{str(chosen).lower()}" '
        colour = next(iter(piece.text.lower().split()), "")
        swatch = f'<span class="swatch" style="background:{colour}"></span>' if colour in _COLOURS else ""
    elif piece.text == BUY:
        kind += " buy"
    value = escape(f"click[{argument}]")
    return f'<button {pressed}class="{kind}" name="action" value="{value}">{swatch}{text}</button>'


def _picture(title: str, asin: str) -> str:
    """A letter on a colour of the product's own, from its id."""
    hue = 137 * sum(ord(letter) * place for place, letter in enumerate(asin, 1)) % 360
    letter = next((letter for letter in title if letter.isalnum()), "·")
    return f'<div class="picture" aria-hidden="true" style="background:hsl({hue} 45% 38%)">{escape(letter)}</div>'
