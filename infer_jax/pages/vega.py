"""Vega-Lite: its library as JavaScript to put into a page, and charts as SVG.

Both come from vl-convert, which holds Vega, Vega-Lite and Vega-Embed and needs no network.
"""

import hashlib
import struct
import textwrap
import zlib
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from infer_jax.catalog.files import replacing
from infer_jax.compiling import kept
from infer_jax.errors import InputError

Spec = Mapping[str, object]  # a chart in Vega-Lite's grammar
NEEDED = {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}  # modules, and how pip names them
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name; nothing is loaded
ENTRY = "window.vegaEmbed = vegaEmbed;"  # all that a page calls


def check() -> None:
    """Do nothing where pages can be written.

    Raises:
        InputError: a package that pages need is not installed.
    """
    for module, name in NEEDED.items():
        if find_spec(module) is None:
            raise InputError("pages", name, "not installed", "pip install 'infer_jax[report]'")


def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; ``vegaEmbed`` is its entry.

    Putting it together takes more than a second: it is kept beside the compiled programs, where
    those are kept, under the version of vl-convert. A damaged file counts as absent.
    """
    import vl_convert

    asked = f"Vega of vl-convert {version('vl-convert-python')}: {ENTRY}"
    name = hashlib.sha256(asked.encode()).hexdigest()
    stored = kept.load(name)
    if stored is not None and stored[0] == asked:
        return stored[1].decode()
    script = vl_convert.javascript_bundle(ENTRY)
    kept.store(name, asked, script.encode())
    return script


def credit() -> str:
    """Which library draws the charts, by which versions and under which licence."""
    import vl_convert

    lite = max(vl_convert.get_vegalite_versions(), key=lambda v: [int(x) for x in v.split(".")])
    return (
        f"Vega {vl_convert.get_vega_version()}, Vega-Lite {lite} and Vega-Embed "
        f"{vl_convert.get_vega_embed_version()}, copyright University of Washington Interactive "
        "Data Lab, BSD-3-Clause licence; they contain D3, copyright Mike Bostock, ISC licence. "
        f"Bundled by vl-convert {version('vl-convert-python')}."
    )


def svg(spec: Spec, width: float = 680.0) -> str:
    """A chart as an SVG element of that many pixels, where no script runs."""
    import vl_convert

    return vl_convert.vegalite_to_svg(fixed(spec, width))


def fixed(spec: Spec, width: float) -> dict[str, object]:
    """A chart whose width is that of its container, at a width of its own."""
    return {**spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}


def save(spec: Spec, path: Path, title: str, caption: str, width: float = 720.0) -> None:
    """Write a chart as a picture, .png or .svg, with its title and caption, also for readers.

    Raises:
        InputError: a place that cannot be written.
    """
    import vl_convert

    head = {"text": _lines(title, 84), "subtitle": _lines(caption, 112), "anchor": "start"}
    head |= {"fontSize": 15, "subtitleFontSize": 11, "offset": 12, "subtitlePadding": 6}
    whole = {**fixed(spec, width), "title": head, "background": "white", "padding": 12}
    if path.suffix.lower() == ".png":
        drawn = _with_words(vl_convert.vegalite_to_png(whole, scale=2.0), title, caption)
    else:
        said = f"<title>{escape(title)}</title><desc>{escape(caption)}</desc>"
        begun, end, rest = vl_convert.vegalite_to_svg(whole).partition(">")
        drawn = f"{begun}{end}{said}{rest}".encode()
    with replacing(path) as partial:
        Path(partial).write_bytes(drawn)


def _lines(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width)


def _with_words(png: bytes, title: str, caption: str) -> bytes:
    """A PNG with its title and description in chunks of text, behind its first chunk."""
    chunks = b""
    for name, text in (("Title", title), ("Description", f"{title}. {caption}")):
        body = b"tEXt" + name.encode() + b"\0" + text.encode("latin-1", "replace")
        chunks += struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    first = 33  # bytes of the signature and of IHDR
    return png[:first] + chunks + png[first:]
