"""Pages from templates, each in one file; whatever is put into one is escaped."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from infer_jax.errors import printable
from infer_jax.pages import vega
from infer_jax.results.numbers import digits, or_unknown, size

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    """A page, or a chart, of a template of this package.

    Raises:
        InputError: a package that pages need is not installed.
    """
    vega.check()
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    """Templates with escaping; text loses characters that a terminal or a page would obey."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def plain(value: object) -> object:
        return printable(value) if isinstance(value, str) and type(value) is not Markup else value

    def svg(spec: vega.Spec, name: str) -> Markup:
        """A chart as SVG, whose texts its writer has escaped; ``name`` keeps its parts apart."""
        text = vega.svg(spec)
        ids = dict.fromkeys(re.findall(r' id="([^"]+)"', text))  # numbered through the process
        own = {old: f"{name}-{i}" for i, old in enumerate(ids)}
        return Markup(re.sub(r'( id="|url\(#)([^")]+)', lambda x: x[1] + own.get(x[2], x[2]), text))

    def script(text: str) -> Markup:
        """A script of this package, or of a library, as it stands."""
        if "</script" in text.lower() or "<!--" in text:
            raise ValueError("a script that ends its own element")
        return Markup(text)

    def short(value: float) -> str:
        return digits(value, 3) if abs(value) < 100.0 else f"{value:.5g}"

    environment = Environment(
        loader=PackageLoader("infer_jax.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_function"] = _as_json
    filters = (svg, script, short, digits, size, or_unknown)
    environment.filters |= {x.__name__: x for x in filters} | {"style": Markup}
    return environment


def _as_json(value: object, **_: object) -> str:
    """Plain data whose texts have no characters that a terminal or a page would obey."""

    def cleaned(value: object) -> object:
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, Mapping):
            return {printable(str(name)): cleaned(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [cleaned(item) for item in value]
        return value

    return json.dumps(cleaned(value), allow_nan=False, separators=(",", ":"))


def digest(script: str) -> str:
    """What a page's policy calls a script that may run: no other is."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def own(name: str) -> str:
    """A file among the templates of this package, as it stands."""
    return files("infer_jax.pages").joinpath("templates", name).read_text(encoding="utf-8")
