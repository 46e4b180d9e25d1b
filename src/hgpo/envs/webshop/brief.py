"""The observation mode `brief`: what changes from page to page, in as few words as possible, for small models.

It leaves out the instruction (`info["task"]` has it), the buttons that are always there and the dollar signs:

    search
    page 1 #B7 warm wool scarf 12 #C2 blue wool scarf 18
    #B7 warm wool scarf 12 ; color red , blue ; size small , large ; chosen blue
    description of #B7 ; knitted by hand

No space stands before an id, as none does in `click[B7]`: a tokenizer that tells a word after a space from one after
a sign, as most do, has one token for both, which a model only needs to copy.
"""

from __future__ import annotations

from hgpo.envs.webshop.pages import View
from hgpo.envs.webshop.product import Product

SEPARATOR = " ; "
ID_MARK = "#"


def as_brief_text(view: View) -> str:
    """One line for a page."""
    match view.kind, view.product:
        case "results", _:
            return " ".join([f"page {view.page}", *(_line(product) for _, product in view.products)])
        case "item", Product() as product:
            options = [f"{name} {' , '.join(values)}" for name, values in product.options.items()]
            return SEPARATOR.join([_line(product), *options, *_chosen(view)])
        case "sub", Product() as product:
            texts = {"Description": (product.description,), "Features": product.bullet_points}.get(view.sub_page, ())
            return SEPARATOR.join([f"{view.sub_page.lower()} of {ID_MARK}{product.asin}", *filter(None, texts)])
        case "done", Product() as product:
            return SEPARATOR.join([f"bought {_line(product)}", *_chosen(view)])
    return "search"


def _line(product: Product) -> str:
    return f"{ID_MARK}{product.asin} {product.title} {' to '.join(f'{price:g}' for price in product.prices)}"


def _chosen(view: View) -> list[str]:
    return [f"chosen {' , '.join(view.chosen.values())}"] if view.chosen else []
