"""Vega-Lite: its library as JavaScript to put into a page, and charts as SVG.

Both come from vl-convert, which holds Vega, Vega-Lite and Vega-Embed and needs no network.
"""

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec

from infer_jax.compiling import store
from infer_jax.errors import InputError

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

    asked = f"Vega of vl-convert {version('vl-convert-python')}: {ENTRY}"
    name = hashlib.sha256(asked.encode()).hexdigest()
    stored = store.load(name)
    if stored is not None and stored[0] == asked:
        return stored[1].decode()
    script = vl_convert.javascript_bundle(ENTRY)
    store.store(name, asked, script.encode())
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

    fixed = {**spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    return vl_convert.vegalite_to_svg(fixed)
