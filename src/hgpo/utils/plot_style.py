"""The style of all figures: colours, dashes, and reproducible files.

The colours are those of Okabe and Ito (2008), distinguishable with any kind of colour blindness; each line also has its
own dash.
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
FIGURE_FORMATS = (".pdf", ".png", ".svg")
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # embedded fonts, which journals require
    "svg.hashsalt": "hgpo",  # fixed ids, so that files are reproducible
    "text.parse_math": False,  # a dollar sign in a name is text
}
_OPTIONS: dict[str, dict[str, Any]] = {
    ".pdf": {"metadata": {"CreationDate": None}},
    ".png": {"dpi": 200},
    ".svg": {"metadata": {"Date": None}},
}


def check_matplotlib() -> None:
    """Raise a `ValueError` with the install command if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError('figures need matplotlib: pip install "hgpo[report]"') from error


@contextmanager
def empty_figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of `width` x `height` inches; inside the context it is drawn and saved in the project's style.

    Raises:
        ValueError: matplotlib is not installed.
    """
    check_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path, suffix: str) -> None:
    """Write the figure to `path` in the format of `suffix`, one of `FIGURE_FORMATS`; the file contains no date."""
    drawn = io.BytesIO()  # in memory first: on a full disk, a writer of matplotlib raises AttributeError
    figure.savefig(drawn, format=suffix[1:], **_OPTIONS[suffix])
    path.write_bytes(drawn.getvalue())


def dash(number: int) -> Any:
    """matplotlib's line style for `DASHES[number]`; 0 is a solid line."""
    return "solid" if number == 0 else (0, DASHES[number])
