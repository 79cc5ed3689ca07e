"""Vega-Lite: its library as JavaScript to put into a page, and charts as SVG.

Both come from vl-convert, which holds Vega, Vega-Lite and Vega-Embed and needs no network.
"""

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec

from infer_jax.compiling import store
from infer_jax.errors import InputError
from infer_jax.plots.style import SERIES

# each at least 3 : 1 against both grounds (WCAG 2.2, 1.4.11), none told apart by its tone alone
TONES = SERIES
NOT_USED = "#7b8794"  # memory that no server has
SHAPES = ("circle", "square", "triangle-up", "triangle-down", "cross", "triangle-right")
GROUNDS = {"light": "#ffffff", "dark": "#15181d"}
INKS = {"light": "#1d2127", "dark": "#e8eaed"}
QUIETS = {"light": "#586069", "dark": "#a7b0ba"}
INK, QUIET = INKS["light"], QUIETS["light"]
Spec = Mapping[str, object]  # a chart in Vega-Lite's grammar
NEEDED = {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}  # modules, and how pip names them
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

    key = f"Vega of vl-convert {version('vl-convert-python')}: {ENTRY}"
    name = hashlib.sha256(key.encode()).hexdigest()
    stored = store.load(name)
    if stored is not None and stored[0] == key:
        return stored[1].decode()
    script = vl_convert.javascript_bundle(ENTRY)
    store.store(name, key, script.encode())
    return script


def versions() -> dict[str, str]:
    """Versions of vl-convert and of the libraries within it."""
    import vl_convert

    lite = max(vl_convert.get_vegalite_versions(), key=lambda v: [int(x) for x in v.split(".")])
    vega, embed = vl_convert.get_vega_version(), vl_convert.get_vega_embed_version()
    return {"vega": vega, "lite": lite, "embed": embed, "bundle": version("vl-convert-python")}


def svg(spec: Spec, width: float = 680.0) -> str:
    """A chart as an SVG element of that many pixels, where no script runs."""
    import vl_convert

    fixed = {**spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    return vl_convert.vegalite_to_svg(fixed)
