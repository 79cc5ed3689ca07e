"""Results that have a figure: shown in a notebook, written as a picture or as a page."""

import base64
import io
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from string import Template

from infer_jax.catalog.files import write_text
from infer_jax.errors import InputError
from infer_jax.plots.style import Figure, heading_and_caption, save, slides
from infer_jax.results import Notes, Part, Result

KINDS = (".png", ".svg", ".pdf", ".html")  # pictures, and a page that holds one


def picture_endings(kinds: Iterable[str] = KINDS) -> str:
    """Which names a picture can have, in words."""
    return f"a name that ends in {', '.join(kinds)}"


class FigureResult(Result):
    """A result that has a figure; ``pictures``: the files that it was drawn to."""

    pictures: tuple[str, ...] = ()
    written_as = "picture"  # what such a file is, and its field in JSON

    @abstractmethod
    def _figure(self) -> Figure:
        """The picture as a matplotlib figure."""

    def plot(self, out: str | os.PathLike[str] | None = None, *, slide: bool = False) -> Figure:
        """The picture, a matplotlib figure; written to ``out`` where one is given.

        ``out`` ends in .png, .svg or .pdf, or in .html for a page with the answer below. A
        ``slide`` is 16 : 9, with larger type, two bands at most and a caption of one line.

        Raises:
            InputError: this answer has no picture; a package is not installed; a file that cannot
                be written, or of another ending.
        """
        with slides(slide):
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
        object.__setattr__(self, "pictures", (*self.pictures, os.fspath(out)))

    def parts(self) -> Iterator[Part]:
        """What is printed, and last of the notes the files of the pictures."""
        parts = [*super().parts()]
        if self.pictures:
            notes = parts.pop() if parts and isinstance(parts[-1], Notes) else Notes([])
            assert isinstance(notes, Notes)
            written = f"{self.written_as.capitalize()}: {', '.join(self.pictures)}."
            parts.append(Notes([*notes.sentences, written]))
        yield from parts

    def to_dict(self) -> dict[str, object]:
        """``Result.to_dict``, with the files of the pictures."""
        written = {self.written_as: ", ".join(self.pictures)} if self.pictures else {}
        return {**super().to_dict(), **written}

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
        alternative = escape(". ".join(heading_and_caption(figure)))
        return f'<img alt="{alternative}" src="data:image/png;base64,{data}">'

    def _write(self, out: Path, figure: Callable[[], Figure]) -> None:
        if out.suffix.lower() not in KINDS:
            raise InputError("plot", "out", str(out), picture_endings())
        if out.suffix.lower() == ".html":
            write_text(out, self._page(figure))
        else:
            save(figure(), out)

    def _page(self, figure: Callable[[], Figure]) -> str:
        """The page of the picture: the figure, and the answer below it; it loads nothing."""
        drawing, image = figure(), io.StringIO()
        drawing.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
        title, caption = map(escape, heading_and_caption(drawing))
        template = Path(__file__).with_name("figure.html").read_text(encoding="utf-8")
        return Template(template).substitute(
            title=title,
            caption=caption,
            figure="".join(image.getvalue().partition("<svg")[1:]),
            answer=self._repr_html_(),
        )


def date_caption(caption: str) -> str:
    """A caption with the version and the day of its drawing (UTC), by SOURCE_DATE_EPOCH if set."""
    from infer_jax import __version__

    at = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    return f"{caption.rstrip()} infer_jax {__version__}, {day}."


def facts_caption(facts: Iterable[str], *sentences: str) -> str:
    """A caption of facts and sentences, those that are not empty, with version and day."""
    parts = [f"{'; '.join(filter(None, facts))}.", *filter(None, sentences)]
    return date_caption(" ".join(parts))


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
