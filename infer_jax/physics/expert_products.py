"""What the products of a mixture's experts multiply and move beside their weights."""

from jax import Array


def multiplied_rows(uses: Array, visited: Array, padding: Array) -> Array:
    """Rows that are multiplied: u + m_0 v, u uses of v experts.

    A kernel multiplies tiles of rows, and the last tile of every expert that is visited is filled
    in part: ``padding`` rows m_0 of an expert are multiplied for nothing. Linear in all three.

    >>> multiplied_rows(100.0, 8.0, 2.0)
    116.0
    """
    return uses + padding * visited


def moved_bytes(uses: Array, outer: Array, inner: Array, element: Array | float) -> Array:
    """Bytes of the inputs and outputs of the products, once: u (2 d + 3 f) a.

    A row of width d goes in and comes out, gate and up products write 2 f numbers and the product
    down reads f, each of ``element`` bytes a. f is the part of an expert's width on a chip.

    >>> moved_bytes(1.0, 4.0, 2.0, 2.0)
    28.0
    """
    return uses * (2.0 * outer + 3.0 * inner) * element
