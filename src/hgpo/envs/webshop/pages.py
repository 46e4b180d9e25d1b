"""The shop's pages as sequences of visible strings, and the observation modes.

`text` joins the stripped strings with ` [SEP] `; `text_rich` marks clickable strings and has one string per line. Both
equal those of the published simulator, which parses HTML: a string of white space becomes one space or, if it contains
a line break, is left out.

`brief`, for small models, leaves out the instruction (see `info["task"]`), the constant buttons and the dollar signs:

    search
    page 1 #B7 warm wool scarf 12 #C2 blue wool scarf 18
    #B7 warm wool scarf 12 ; color red , blue ; size small , large ; chosen blue
    description of #B7 ; knitted by hand

Ids follow `#` without a space, as in `click[B7]`: most tokenizers distinguish words after a space, so this gives the
same tokens, which a model only needs to copy.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from hgpo.envs.webshop.product import Product

SEPARATOR = " [SEP] "
BRIEF_SEPARATOR, ID_MARK = " ; ", "#"
BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
HIDDEN_SUB_PAGE = "Attributes"
"""A page without a button; clicking an option value of that name opens it."""
_BASE = "http://127.0.0.1:3000"
_WHITE_SPACE = " \n\t\f\r"
_INVISIBLE = ("", "\n")


class PieceKind(Enum):
    """The kind of a visible string."""

    PLAIN = auto()
    BUTTON = auto()
    PRODUCT = auto()
    OPTION = auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """One visible string.

    Attributes:
        text: the string.
        kind: its kind.
        name: the option's name, for an option.
        product: the product's position in the catalogue, for a product.
    """

    text: str
    kind: PieceKind = PieceKind.PLAIN
    name: str = ""
    product: int = -1


@dataclass(frozen=True, slots=True)
class View:
    """The state of a session, from which a page is made.

    Attributes:
        kind: "search", "results", "item", "sub" or "done".
        instruction: the goal's sentence.
        session: the session's name in addresses.
        keywords: words of the search.
        page: number of the page of results, from 1.
        total: number of products found.
        products: pairs (position in the catalogue, product) on the page of results.
        product: the product of the page.
        chosen: option name -> value clicked.
        sub_page: name of the sub-page.
        reward: reward of the purchase.
    """

    kind: str
    instruction: str
    session: str
    keywords: tuple[str, ...] = ()
    page: int = 0
    total: int = 0
    products: tuple[tuple[int, Product], ...] = ()
    product: Product | None = None
    chosen: Mapping[str, str] = field(default_factory=dict)
    sub_page: str = ""
    reward: float = 0.0

    @property
    def address(self) -> str:
        """The published simulator's URL, which determines the kind of page there and in `env.py`."""
        words, asin = "+".join(self.keywords), self.product.asin if self.product else ""
        match self.kind:
            case "results":
                return f"{_BASE}/search_results/{self.session}/{words}/{self.page}"
            case "item":
                return f"{_BASE}/item_page/{self.session}/{asin}/{words}/{self.page}/{json.dumps(dict(self.chosen))}"
            case "sub":
                place = f"{self.session}/{asin}/{words}/{self.page}/{self.sub_page}"
                return f"{_BASE}/item_sub_page/{place}/{dict(self.chosen)}"
            case "done":
                return f"{_BASE}/done/{self.session}/{asin}/{dict(self.chosen)}"
        return f"{_BASE}/{self.session}"


def pieces(view: View) -> list[Piece]:
    """The strings of a page, in order, empty ones included."""
    made = {"search": _search, "results": _results, "item": _item, "sub": _sub, "done": _done}[view.kind](view)
    return [_collapsed(piece) for piece in made]


def clickables(page: Collection[Piece]) -> dict[str, Piece]:
    """Clickable strings by the argument of `click[…]`: buttons, products, then options."""
    buttons = [(piece.text.lower(), piece) for piece in page if piece.kind is PieceKind.BUTTON]
    products = [(piece.text.lower(), piece) for piece in page if piece.kind is PieceKind.PRODUCT]
    return dict([*buttons, *products, *((piece.text, piece) for piece in page if piece.kind is PieceKind.OPTION)])


def as_text(page: Collection[Piece]) -> str:
    """The observation mode `text`."""
    return SEPARATOR.join(piece.text.strip() for piece in page if piece.text not in _INVISIBLE)


def as_rich_text(page: Collection[Piece], address: str, visited: Collection[str]) -> str:
    """The observation mode `text_rich`; `visited` has the ids of the products clicked since the search page."""
    text = ""
    for piece in page:
        if piece.text in _INVISIBLE:
            continue
        match piece.kind:
            case PieceKind.BUTTON:
                text += f"[button] {piece.text} [button_]\n"
            case PieceKind.OPTION if f'"{piece.text}"' in address:
                text = f"You have clicked {piece.text}.\n{text}  [clicked button] {piece.text} [clicked button_]\n"
            case PieceKind.OPTION:
                text += f"  [button] {piece.text} [button_]\n"
            case PieceKind.PRODUCT:
                mark = "clicked button" if piece.text in visited else "button"
                text += f"\n[{mark}] {piece.text} [{mark}_]\n"
            case PieceKind.PLAIN:
                text += f"{piece.text}\n"
    return text


def as_brief_text(view: View) -> str:
    """The observation mode `brief`."""
    match view.kind, view.product:
        case "results", _:
            return " ".join([f"page {view.page}", *(_line(product) for _, product in view.products)])
        case "item", Product() as product:
            options = [f"{name} {' , '.join(values)}" for name, values in product.options.items()]
            return BRIEF_SEPARATOR.join([_line(product), *options, *_chosen(view)])
        case "sub", Product() as product:
            texts = {"Description": (product.description,), "Features": product.bullet_points}.get(view.sub_page, ())
            return BRIEF_SEPARATOR.join([f"{view.sub_page.lower()} of {ID_MARK}{product.asin}", *filter(None, texts)])
        case "done", Product() as product:
            return BRIEF_SEPARATOR.join([f"bought {_line(product)}", *_chosen(view)])
    return "search"


def _line(product: Product) -> str:
    return f"{ID_MARK}{product.asin} {product.title} {' to '.join(f'{price:g}' for price in product.prices)}"


def _chosen(view: View) -> list[str]:
    return [f"chosen {' , '.join(view.chosen.values())}"] if view.chosen else []


def _collapsed(piece: Piece) -> Piece:
    if piece.text.strip(_WHITE_SPACE):
        return piece
    return Piece(piece.text and ("\n" if "\n" in piece.text else " "), piece.kind, piece.name, piece.product)


def _button(text: str) -> Piece:
    return Piece(text, PieceKind.BUTTON)


def _head(view: View) -> Iterator[Piece]:
    yield Piece("Instruction:")
    yield Piece(view.instruction)
    yield _button(BACK)


def _search(view: View) -> Iterator[Piece]:
    yield Piece("WebShop")
    yield Piece("Instruction: ")
    yield Piece(view.instruction)
    yield _button("Search")


def _results(view: View) -> Iterator[Piece]:
    yield from _head(view)
    yield Piece(f"Page {view.page} (Total results: {view.total})")
    if view.page > 1:
        yield _button(PREVIOUS)
    yield _button(NEXT)
    for number, product in view.products:
        yield Piece(product.asin, PieceKind.PRODUCT, product=number)
        yield Piece(product.title)
        yield Piece(product.price_tag)


def _item(view: View) -> Iterator[Piece]:
    product = _product(view)
    yield from _head(view)
    yield _button(PREVIOUS)
    for name, values in product.options.items():
        yield Piece(name)
        for value in values:
            yield Piece(value, PieceKind.OPTION, name)
    yield Piece(product.title)
    yield Piece(f"Price: {product.price_tag}")
    yield Piece("Rating: N.A.")
    for name in SUB_PAGES:
        yield _button(name)
    yield _button(BUY)


def _sub(view: View) -> Iterator[Piece]:
    product = _product(view)
    yield from _head(view)
    yield _button(PREVIOUS)
    if view.sub_page == "Description":
        yield Piece(product.description)
    elif view.sub_page == "Features":
        yield from (Piece(f" {point}") for point in product.bullet_points)
    elif view.sub_page == HIDDEN_SUB_PAGE:
        yield from (Piece(f" {attribute}") for attribute in product.attributes)
        yield from (Piece(text) for text in (product.category, product.query, product.product_category))


def _done(view: View) -> Iterator[Piece]:
    """As published: only the purchase and the score are filled in."""
    texts = "Thank you for shopping with us!|Your code: |None| (Paste it in your MTurk interface.)|Purchased|asin"
    yield from map(Piece, texts.split("|"))
    yield Piece(_product(view).asin)
    yield Piece("options")
    yield Piece(_as_script(dict(view.chosen)))
    texts = "attrs|None|category|None|query|None|product category|None|Target|asin|options|attrs|price upper"
    yield from map(Piece, texts.split("|"))
    texts = "instuction text|category|product category|query|Goal |None|Reward|Your score (min 0.0, max 1.0)"
    yield from map(Piece, texts.split("|"))
    yield Piece(str(view.reward))
    yield Piece("Reward Details ")
    yield Piece("None")


def _as_script(value: Mapping[str, str]) -> str:
    """JSON for HTML: sorted names, escaped special characters."""
    text = json.dumps(value, sort_keys=True)
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _product(view: View) -> Product:
    assert view.product is not None, f"a page of kind {view.kind!r} needs a product"
    return view.product
