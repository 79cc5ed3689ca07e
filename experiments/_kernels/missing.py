"""Kernels without a measurement: the default that was used, or the error."""

from collections.abc import Mapping
from typing import NamedTuple

from infer_jax.catalog.kernel_tables import KernelTables
from infer_jax.errors import InputError
from infer_jax.estimators.kernels.efficiency import HEADLESS, MEASURED, NO_TABLE, REFUSED, ZERO
from infer_jax.estimators.kernels.kernel import Kernel
from infer_jax.physics import attention as att
from infer_jax.specs import Architecture, Dense, GroupedQuery, Latent, Linear, Sparse

Tabulated = GroupedQuery | Latent | Sparse | Linear  # attention that has tables of its cores


class Lack(NamedTuple):
    """A kernel without a measurement. ``error`` is set where no default is taken for it.

    ``warned``: the authors' tool prints a warning, about ``table``.
    """

    kernel: str
    table: str
    sentence: str
    warned: bool
    error: InputError | None = None
    headless: bool = False


def lacks(
    tables: KernelTables, arch: Architecture, kernels: Mapping[str, Kernel], stage: str, tp: float
) -> list[Lack]:
    """What the look-ups of one phase lacked, in the order in which the tool looks up."""
    return [
        _lack(tables, name, *table_of(arch, name, stage, tp), kernel)
        for name, kernel in kernels.items()
        if float(kernel.lack) != MEASURED
    ]


def table_of(arch: Architecture, kernel: str, stage: str, tp: float) -> tuple[str, str]:
    """The family of tables that a kernel is looked up in, and the shape in the file's name."""
    if kernel in ("attn_core", "lin_core"):
        wanted = Linear if kernel == "lin_core" else (GroupedQuery, Latent, Sparse)
        each = (b.attention for b in arch.blocks if isinstance(b.attention, wanted))
        attention = next(each)
        return f"{att.of(attention).core.table}.{stage}", core_of(attention, stage, tp)
    experts = all(not isinstance(b.feedforward, Dense) for b in arch.blocks)
    return (f"grouped.{stage}", "") if kernel == "moe" and experts else ("gemm", "")


def core_of(attention: Tabulated, stage: str, tp: float) -> str:
    """The shape of an attention core on one tensor rank, as the files are named."""
    match attention:
        case Sparse(base=base):
            return core_of(base, stage, tp)
        case Linear():
            a = attention
            shape = (a.conv_width, a.key_heads, a.key_width, a.value_heads, a.value_width)
        case GroupedQuery():
            a = attention
            shape = (a.query_heads // tp, a.kv_heads // tp, a.head_width)
        case Latent():
            a = attention
            inner = a.kv_rank if stage == "decode" else a.nope_width
            shape = (a.query_heads // tp, inner, a.rope_width)
    return "-".join(f"{float(x):g}" for x in shape)


def _lack(tables: KernelTables, name: str, family: str, core: str, kernel: Kernel) -> Lack:
    lack = float(kernel.lack)
    kind, _, stage = family.partition(".")
    if kind in ("gemm", "grouped"):
        folder = "gemm" if kind == "gemm" else f"grouped_gemm/{stage}"
        file = f"{folder}/{tables.device}/data"
        rows = file if kind == "gemm" else f"grouped_gemm {stage}"
        table, warned = (file, True) if lack == NO_TABLE else (rows, kind == "grouped")
    else:
        table, warned = f"{kind}/{stage}/{tables.device}/{core}", lack == NO_TABLE
        file = table
    if lack >= REFUSED or kind == "gdn":
        error = _refusal(tables, family, core, file, lack, float(kernel.row))
        return Lack(name, table, str(error), warned, error, lack == HEADLESS)
    why = "no such table" if lack == NO_TABLE else "no row fits"
    return Lack(name, table, f"{file}.csv: {why}: MFU {float(kernel.mfu):g} is taken", warned)


def _refusal(
    tables: KernelTables, family: str, core: str, file: str, lack: float, row: float
) -> InputError:
    """What is wrong with the table that a look-up needs, with file and line where it has one."""
    if lack == ZERO:
        where, line = tables.families[family].places[int(row)]
        return InputError(where, f"line {line}, mfu", 0, "a number above 0, for it is divided by")
    if lack == HEADLESS:
        return tables.headless[family, tuple(float(x) for x in core.split("-"))]
    what = "no such table" if family.startswith("gdn") else "no row of this kv_dtype"
    return InputError(f"{file}.csv", "", what, "a table measured for this shape")
