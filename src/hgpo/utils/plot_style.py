"""How every picture looks: colours, dashes, points, and files that come out the same each time.

Colours are those of Okabe and Ito (2008), which people with any kind of colour blindness tell apart; every line has
its own dash and point as well.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
DASHES = ((1, 0), (6, 2), (2, 2), (8, 2, 2, 2), (4, 4), (1, 3))
MARKERS = ("o", "s", "^", "D", "P", "v")
"""matplotlib's names of the points, in the order of the colours."""
FIGURE_FORMATS = (".pdf", ".png", ".svg")
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # fonts as text, which journals ask for
    "svg.hashsalt": "hgpo",  # else ids are drawn anew for each file
    "text.parse_math": False,  # a dollar in a name is a dollar
}
_OPTIONS: dict[str, dict[str, Any]] = {
    ".pdf": {"metadata": {"CreationDate": None}},
    ".png": {"dpi": 200},
    ".svg": {"metadata": {"Date": None}},
}


def check_matplotlib() -> None:
    """A `ValueError` where matplotlib is not installed; it says what to install."""
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError('figures need matplotlib: pip install "hgpo[report]"') from error


@contextmanager
def empty_figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches; it is drawn and saved in the project's style as long as the context lasts.

    Raises:
        ValueError: matplotlib is not installed.
    """
    check_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path, suffix: str) -> None:
    """Write the figure to `path` in the format of `suffix`, one of `FIGURE_FORMATS`; the file holds no date."""
    drawn = io.BytesIO()  # matplotlib's writers do not survive a full disk: one raises an AttributeError then
    figure.savefig(drawn, format=suffix[1:], **_OPTIONS[suffix])
    path.write_bytes(drawn.getvalue())


def dash(number: int) -> Any:
    """matplotlib's line style of the dash with this number."""
    return "solid" if number == 0 else (0, DASHES[number])
