"""How do fitted curves become the ``[kernels]`` table of a profile, errors in the notes?

Families that nobody measured on a chip are filled with a related one's and say so.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from experiments._kernels.fits import Fitted, spread
from infer_jax.specs import leaves

SUFFIX = {"s": ("_us", 1e6), "tokens": ("_tokens", 1.0)}
FILLS = {
    "grouped_decode": ("grouped",),
    "grouped_prefill": ("grouped",),
    "gqa_prefill": ("mla_prefill",),
    "mla_prefill": ("gqa_prefill",),
}


def note(one: Fitted) -> str:
    """Errors of a family in words."""
    seen, rows = "{:.1f}/{:.1f} %".format(*spread(one.seen)), len(one.seen)
    said = f"median/p90 error {seen} of {rows} rows"
    if not any(x != x for x in one.unseen):
        said += ", on unseen shapes {:.1f}/{:.1f} %".format(*spread(one.unseen))
    return said


def lines(family: str, coefficients: Any, source: str, said: str) -> Iterable[str]:
    """The entries of one family, the note at the first."""
    for i, (path, meta, value) in enumerate(leaves(coefficients)):
        suffix, factor = SUFFIX.get(meta["unit"], ("", 1.0))
        number = float(f"{float(value) * factor:.4g}")
        extra = f', note = "{said}"' if i == 0 else ""
        yield f'{family}_{path}{suffix} = {{ value = {number!r}, source = "{source}"{extra} }}'


def sheet(made: Mapping[str, Fitted], source: str) -> list[str]:
    """The whole table, filled families after measured ones."""
    out = ["[kernels]"]
    for name, one in made.items():
        if name in ("all_reduce", "grouped") or "," in name:
            continue
        out += lines(name, one.coefficients, source, note(one))
    for name, others in FILLS.items():
        other = next((o for o in others if o in made), None)
        if name not in made and other is not None:
            said = note(made[other])
            if other != "grouped":
                said = f"not measured here: filled with {other}"
            out += lines(name, made[other].coefficients, source, said)
    return out
