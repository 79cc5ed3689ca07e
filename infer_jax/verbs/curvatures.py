"""How the slopes of outputs move, and which numbers act on each other: tables and sentences."""

import math
from collections.abc import Iterator

from infer_jax.design.what_ifs import Curvature
from infer_jax.results import Column, Section, table
from infer_jax.specs.words import name_of

CURVATURES = (
    Column("how slopes move", "", "path", name_of, left=True),
    Column("slope", "", "slope", "{:+.3f}".format),
    Column("with itself", "+10 %", "own", "{:+.3f}".format),
    Column("most with another", "+10 %", "by", "{:+.3f}".format),
    Column("which", "", "other", name_of, left=True),
)


def curvature_sections(one: Curvature) -> Iterator[Section]:
    """How the leading slopes of an output move, and the pairs that act on each other most."""
    tenth = math.log(1.1)
    rows = [
        {
            "path": path,
            "slope": slope,
            "own": tenth * one.matrix[i, i],
            "other": other,
            "by": tenth * x,
        }
        for i, (path, slope) in enumerate(zip(one.paths, one.slopes, strict=True))
        for other, x in [one.strongest(path)]
    ]
    yield ""
    yield table(rows, CURVATURES)
    slopes = dict(zip(one.paths, one.slopes, strict=True))
    for first, second, term in one.extremes:
        counts = ["more" if slopes[x] * term > 0 else "less" for x in (second, first)]
        ends = [f"{slopes[x]:+.3f} to {slopes[x] + tenth * term:+.3f}" for x in (second, first)]
        names = name_of(first), name_of(second)
        yield (
            f"{names[0]} and {names[1]}: with 10 % more of the first the second counts {counts[0]} "
            f"({ends[0]}), with 10 % more of the second the first {counts[1]} ({ends[1]})."
        )
