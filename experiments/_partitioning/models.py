"""Which models and chips does the partitioning paper study?

Pope et al. 2022 (arXiv 2211.05102): PaLM and MT-NLG, their variants of single sections, TPU v4 and
the A100 of the FasterTransformer benchmarks.
"""

from infer_jax.catalog import load_model
from infer_jax.catalog.published.tables import hardware_of, row_of
from infer_jax.errors import InputError
from infer_jax.specs import Architecture, Format, GroupedQuery, Hardware

BYTES = {"bf16": 2.0, "int8": 1.0}


def partitioning_parameters(name: str) -> float:
    """Parameters that the paper's MFU counts: padded heads are not among them.

    Raises:
        InputError: the paper has no such model.
    """
    return row_of("partitioning", "models", name)["parameters"]


def partitioning_model(
    name: str,
    *,
    weights: str = "bf16",
    multihead: bool = False,
    parallel: bool | None = None,
) -> Architecture:
    """A model of the paper, or the variant of it that a section studies.

    Args:
        name: of the table of models; PaLM_540B has its heads padded from 48 to 64.
        weights: bf16 or int8; either is multiplied in 16 bits (Section 3.6).
        multihead: a key-value head a query head, of half the width (Section 4.2).
        parallel: attention beside the feedforward, or after it (Section 4.3).

    Raises:
        InputError: the paper has no such model or format.
    """
    if weights not in BYTES:
        raise InputError("partitioning paper", "weights", weights, " or ".join(BYTES))
    arch = load_model(row_of("partitioning", "models", name)["model"]).architecture
    stored = Format.of(bytes=BYTES[weights], bits=16.0)
    (block,) = arch.blocks
    attention = block.attention
    assert isinstance(attention, GroupedQuery)
    if multihead:
        half = attention.head_width / 2.0
        attention = attention.with_(
            kv_heads=attention.query_heads, head_width=half, value_width=half
        )
    block = block.with_(
        attention=attention.with_(weights=stored),
        feedforward=block.feedforward.with_(weights=stored),  # pyright: ignore[reportOptionalMemberAccess]
    )
    wide = arch.with_(blocks=(block,), embedding=stored, head=stored)
    return wide if parallel is None else wide.with_(parallel=float(parallel))


def partitioning_hardware(name: str) -> Hardware:
    """A chip as the paper describes it: tpu_v4, or a100 of the FasterTransformer benchmarks.

    Raises:
        InputError: the paper has no such chip.
    """
    return hardware_of(row_of("partitioning", "hardware", name))
