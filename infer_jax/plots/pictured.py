"""Results that draw themselves: one place decides by its name what a picture is written as."""

import base64
import io
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from infer_jax.catalog.files import write_text
from infer_jax.errors import InputError
from infer_jax.results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # no script, nothing loaded
LOOK = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1d2127; --rule: #c5cbd1; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #15181d; --ink: #e8eaed; --rule: #444c56; }
}
body { margin: 0 auto; max-width: 75rem; padding: 1rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1 { position: absolute; clip-path: inset(50%); } /* the picture has its own */
figure { margin: 0; padding: 0.5rem; background: #ffffff; border: 1px solid var(--rule);
  overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 36rem; max-width: 60rem; height: auto;
  margin: 0 auto; } /* narrow windows scroll it: smaller letters cannot be read */
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0.6rem 0; }
td, th { padding: 0.15rem 0.6rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
pre { overflow-x: auto; }
@media print { figure { break-inside: avoid; border: 0; } figure svg { min-width: 0; } }
"""
KINDS = (".png", ".svg", ".pdf", ".html")  # pictures, and a page that holds one


def ending(kinds: tuple[str, ...] = KINDS) -> str:
    """Which names a picture can have, in words."""
    return f"a name that ends in {', '.join(kinds)}"


class Pictured(Result):
    """A result that has a picture."""

    @abstractmethod
    def _figure(self) -> "Figure":
        """The picture as a matplotlib figure."""

    def plot(self, out: str | os.PathLike[str] | None = None) -> "Figure":
        """The picture, a matplotlib figure; written to ``out`` where one is given.

        ``out`` ends in .png, .svg or .pdf, or in .html for a page with the answer below.

        Raises:
            InputError: this answer has no picture; a package is not installed; a file that cannot
                be written, or of another ending.
        """
        figure = self._figure()
        if out is not None:
            self._write(Path(out), lambda: figure)
        return figure

    def draw(self, out: str | os.PathLike[str]) -> None:
        """Write what ``plot`` writes; a figure is drawn only where the file needs one.

        Raises:
            InputError: as ``plot``.
        """
        self._write(Path(out), self._figure)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """A notebook's last expression: the picture, where it can be drawn, above the text."""
        return {"text/plain": str(self), "text/html": self._image() + self._repr_html_()}

    def _image(self) -> str:
        """The picture as an HTML element; "" where there is none."""
        try:
            figure = self._figure()
        except InputError:  # nothing to draw, or matplotlib is not installed
            return ""
        image = io.BytesIO()
        figure.savefig(image, format="png")
        data = base64.b64encode(image.getvalue()).decode()
        words = escape(". ".join(heading_and_caption(figure)))
        return f'<img alt="{words}" src="data:image/png;base64,{data}">'

    def _write(self, out: Path, figure: "Callable[[], Figure]") -> None:
        from infer_jax.plots.style import save

        if out.suffix.lower() not in KINDS:
            raise InputError("plot", "out", str(out), ending())
        if out.suffix.lower() == ".html":
            write_text(out, self._page(figure))
        else:
            save(figure(), out)

    def _page(self, figure: "Callable[[], Figure]") -> str:
        """The page of the picture: the figure, and the answer below it."""
        return page(figure(), self._repr_html_())


def page(figure: "Figure", answer: str) -> str:
    """A page of a figure that needs nothing beside it; ``answer`` is HTML that stands below."""
    title, caption = (escape(text) for text in heading_and_caption(figure))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{title}</title><style>{LOOK}</style></head>\n<body><main><h1>{title}</h1>\n"
        f'<figure tabindex="0"><div role="img" aria-label="{title}. {caption}">{_svg(figure)}'
        f"</div></figure>\n"
        f'<div class="wide" tabindex="0" role="region" aria-label="The answer">'
        f"{answer}</div></main></body></html>\n"
    )


def heading_and_caption(figure: "Figure") -> tuple[str, str]:
    """The title and the caption of a figure, each in one line, as a reader sees them."""
    title = figure.get_suptitle()
    caption = " ".join(text.get_text() for text in figure.texts if text.get_text() != title)
    both = (" ".join(text.split()).replace(r"\$", "$") for text in (title, caption))
    return next(both), next(both)


def _svg(figure: "Figure") -> str:
    """The figure as an SVG element."""
    image = io.StringIO()
    figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return image.getvalue().partition("<svg")[2].join(("<svg", ""))


def dated(caption: str) -> str:
    """A caption with the version and the day of its drawing (UTC), by SOURCE_DATE_EPOCH if set."""
    from infer_jax import __version__

    at = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    return f"{caption.rstrip()} infer_jax {__version__}, {day}."


def rent(prices: Mapping[str, float], currency: str = "USD") -> str:
    """Rents by the names of their systems, in words.

    >>> rent({"h100_sxm": 3.2})
    '$3.20 per GPU-hour'
    >>> rent({"h100_sxm": 3.2, "h200_sxm": 3.995}, "EUR")
    'EUR per GPU-hour: 3.20 on h100_sxm, 3.995 on h200_sxm'
    """
    sign = "$" if currency == "USD" else f"{currency} "
    texts = {name: f"{x:.2f}" if round(x, 2) == x else f"{x:.6g}" for name, x in prices.items()}
    if len(texts) == 1:
        return f"{sign}{next(iter(texts.values()))} per GPU-hour"
    every = ", ".join(f"{price} on {name}" for name, price in texts.items())
    return f"{sign.strip()} per GPU-hour: {every}"
