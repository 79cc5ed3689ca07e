"""Priors of kernels: laws fitted to tables of measured operators, and their spread over tables.

The tables, by chip, engine and version, are those of NVIDIA's wheel ``aisimulate`` (Apache-2.0);
they are read where it is installed and never copied.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import distributions
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.calibration.pooled.operator_laws import (
    FORMATS,
    LAWS,
    MOST,
    Facts,
    Numbers,
    OperatorLaw,
)
from infer_jax.catalog import load_system
from infer_jax.catalog.foreign import parquet_columns, read_parquet
from infer_jax.catalog.published import OperatorPrior
from infer_jax.errors import InputError
from infer_jax.estimators.serving.engines import TILES
from infer_jax.specs import Hardware

INSTALL = "pip install --no-deps --pre --only-binary :all: aisimulate"
ENGINES = ("sglang", "trtllm", "vllm")
# profile and generation of each folder of tables
CHIPS = {
    "h100_sxm": ("h100_sxm", "hopper"),
    "h200_sxm": ("h200_sxm", "hopper"),
    "b200_sxm": ("b200_sxm", "blackwell"),
    "b300_sxm": ("b300_sxm", "blackwell"),
    "gb200": ("gb200_nvl72", "blackwell"),
    "gb300": ("gb300_nvl72", "blackwell"),
    "a100_sxm": ("a100_sxm", "a100"),
    "l40s": ("l40s", "l40s"),
    "rtx_pro_6000_server": ("rtx_pro_6000", "rtx_pro_6000"),
}
RELEASE = re.compile(r"\d+(\.\d+)*(rc\d+|\.post\d+)?")  # of engines; others are development builds
# rows of a table that counts, and their share of those of the engine's fullest version
FEWEST, SHARE = 40, 0.25
ROWS = 3000  # of a table, drawn, so that all tables share a program
# rows of a table err together: it counts as so many rows that err apart, each by a tenth, beside
# what holds a coefficient within a factor of e of its start
INDEPENDENT = 30
SCALE = 0.1
WORST, LEAST_SPREAD = 0.3, 0.05
DEVIATION = 1.4826  # of a normal, over the median absolute deviation
ALONE = 128.0  # rows of a tile of attention that is timed alone: 128 heads reach its full rate
PRIORS_OF = ("hopper", "blackwell")  # generations with coefficients of their own
DENSE = {"bfloat16": "gemm_16", "fp8": "gemm_8", "fp8_block": "gemm_8", "nvfp4": "gemm_4"}
COMMON = ("weight_read", "cache_read", "grouped", "expert_rows", "expert_moves",
          "prefill_attention", "hop", "link")  # fmt: skip


class OperatorTable(NamedTuple):
    """The rows of one format in one table of measured operators, with the law they are of."""

    law: str
    chip: str
    engine: str
    version: str
    format: str
    facts: Facts
    seconds: np.ndarray

    @property
    def generation(self) -> str:
        """Of the chip."""
        return CHIPS[self.chip][1]


def data_folder(path: Path | None = None) -> Path:
    """The folder of the tables, of the package ``aisimulate_core`` or of one at ``path``.

    Raises:
        InputError: no such package.
    """
    if path is None:
        package = find_spec("aisimulate_core")
        if package is None or package.origin is None:
            raise InputError("measured operators", "aisimulate", "not installed", INSTALL)
        path = Path(package.origin).parent
    folder = path / "systems" / "data"
    if not folder.is_dir():
        allowed = f"the folder aisimulate_core of the wheel: {INSTALL}"
        raise InputError(str(path), "", "no systems/data in it", allowed)
    return folder


def package_version(folder: Path) -> str:
    """The version of the wheel that a folder of tables is in."""
    found = distributions(name="aisimulate", path=[str(folder.parents[2])])
    return next((x.version for x in found), "of unknown version")


def operator_tables(folder: Path) -> list[OperatorTable]:
    """Of every law the newest release of each engine on each chip, format by format.

    A release that measured a few rows only is passed over for the one before.

    Raises:
        InputError: no table; one that is damaged, without a column, or with a value that is no
            number.
    """
    tables: list[OperatorTable] = []
    for (name, law), chip, engine in product(LAWS.items(), CHIPS, ENGINES):
        paths = folder.glob(f"{chip}/*/{engine}/*/{law.table}.parquet")
        released = [p for p in paths if RELEASE.fullmatch(p.parent.name)]
        released.sort(key=lambda p: _order(p.parent.name), reverse=True)
        read = [(path.parent.name, rows_by_format(law, path)) for path in released]
        for kind in FORMATS:
            versions = [(version, *found[kind]) for version, found in read if kind in found]
            fewest = max([FEWEST, *(SHARE * len(seconds) for *_, seconds in versions)])
            newest = [x for x in versions if len(x[2]) >= fewest][:1]
            tables += [OperatorTable(name, chip, engine, x[0], kind, *x[1:]) for x in newest]
    if not tables:
        allowed = "tables of " + ", ".join(sorted({law.table for law in LAWS.values()}))
        raise InputError(str(folder), "", "no measured operators", allowed)
    return tables


def _order(version: str) -> list[int]:
    """A key by which versions are in order: a candidate before its release."""
    return [int(x) for x in re.findall(r"-?\d+", version.replace("rc", ".-1.") + ".0")]


def rows_by_format(law: OperatorLaw, path: Path) -> dict[str, tuple[Facts, np.ndarray]]:
    """Facts and seconds of the rows that count, by format; of kernels of one shape the fastest.

    Raises:
        InputError: as ``operator_tables``.
    """
    numbers, present = (*law.numbers, "latency"), parquet_columns(path)
    for name in (*numbers, *law.texts, law.format):
        if name not in present:
            raise InputError(str(path), name, "missing", f"a column among {', '.join(present)}")
    names = (*numbers, *law.texts, law.format, *law.optional)
    columns = read_parquet(path, names=[name for name in names if name in present])
    for name in numbers:
        columns[name] = _numbers(path, name, columns[name])
    facts, keep = law.facts(columns)
    kinds = columns[law.format]
    return {
        kind: _fastest(facts, columns["latency"] * 1e-3, keep & (kinds == kind))
        for kind in FORMATS
        if np.any(keep & (kinds == kind))
    }


def _numbers(path: Path, name: str, column: np.ndarray) -> np.ndarray:
    """A column as numbers of at least 0; above 0 where they are times."""
    least = 1e-9 if name == "latency" else 0.0  # milliseconds
    try:
        numbers = column.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= least)))
    except (ValueError, TypeError):
        raise InputError(str(path), name, "text", "a column of numbers") from None
    if wrong.size:
        allowed = "a number above 0" if least else "a number of at least 0"
        raise InputError(str(path), f"row {wrong[0]}, {name}", column[wrong[0]], allowed)
    return numbers


def _fastest(facts: Facts, seconds: np.ndarray, keep: np.ndarray) -> tuple[Facts, np.ndarray]:
    """The rows to ``keep``, one of each shape."""
    kept, seconds = np.stack([x[keep] for x in facts.values()]), seconds[keep]
    order = np.lexsort((seconds, *kept))
    kept, seconds = kept[:, order], seconds[order]
    first = np.append(True, np.any(np.diff(kept) != 0.0, axis=0))
    return dict(zip(facts, kept[:, first], strict=True)), seconds[first]


class OperatorFit(NamedTuple):
    """A law on one table: coefficients, the variance that it leaves to the logarithm of each.

    ``error``: the median relative error of the law on the rows.
    """

    table: OperatorTable
    values: dict[str, float]
    variances: dict[str, float]
    error: float

    @property
    def good(self) -> bool:
        """Whether the law holds on this table."""
        return self.error <= WORST

    def named(self) -> dict[str, str]:
        """By coefficient of the law the path in ``Serving``, where it has one."""
        table = self.table
        names = {name: name for name in self.values if name in COMMON}
        if "share" in self.values:
            names["share"] = f"{table.generation}.{_dense(table)}"
        if "decode_share" in self.values:
            bits = 16 if table.format == "bfloat16" else 8
            names["decode_share"] = f"{table.generation}.attention_{bits}"
        return names


def _dense(table: OperatorTable) -> str:
    """Scales by block have a rate of their own on Hopper."""
    blocked = table.format == "fp8_block" and table.generation == "hopper"
    return "blocked" if blocked else DENSE[table.format]


def fits(tables: Sequence[OperatorTable]) -> list[OperatorFit]:
    """The laws fitted to all tables.

    Experts compute at the rate of dense products of the chip's generation and format, as in
    ``Serving``: of them it is learnt by how much less. They read weights about as dense products
    do, and latent attention its cache as grouped attention does: rows in which both times are
    alike do not tell them apart.
    """
    later = ("experts", "latent decode")
    done = [fitted(table) for table in tables if table.law not in later]
    common = pool_priors(done)
    own = {name: pool_priors(done, (name,)) for _, name in CHIPS.values()}
    for table in tables:
        if table.law in later:
            share = _share(table, own[table.generation]) if table.law == "experts" else 1.0
            if share is not None:
                done.append(fitted(table, common, dense=share))
    return done


def _share(table: OperatorTable, priors: Mapping[str, OperatorPrior]) -> float | None:
    """The share of the peak that dense products of a table's chips and format reach, if known."""
    names = {_dense(table), DENSE[table.format]}  # scales by block are over those by tensor
    found = [priors.get(f"{table.generation}.{name}") for name in names]
    return None if None in found else float(np.prod([x.value for x in found if x is not None]))


def fitted(
    table: OperatorTable, near: Mapping[str, OperatorPrior] | None = None, dense: float = 1.0
) -> OperatorFit:
    """A law fitted to a table: Cauchy's loss of log residuals, beside what holds coefficients.

    ``near``: what is known of coefficients before; ``dense``: the share that dense products reach.
    """
    from scipy.optimize import least_squares

    law, count = LAWS[table.law], len(table.seconds)
    drawn = np.random.default_rng(0).choice(count, ROWS, replace=count < ROWS)
    stored, bits = FORMATS[table.format]
    # of other generations 16: PTX ISA, mma.m16n8k16
    tile = min(TILES.get(table.generation, 16.0), ALONE)
    same = {"bytes": stored, "bits": bits, "dense": dense, "tile": tile}  # of all rows
    facts = {name: x[drawn] for name, x in table.facts.items()} | same
    known = near or {}
    start = [known[name].value if name in known else x for name, x in law.start.items()]
    # kernels of another kind read alike within a tenth at best
    spread = [max(known[name].spread, SCALE) if name in known else 1.0 for name in law.start]
    residuals, slopes = _programs(table.law)
    rest = (facts, table.seconds[drawn], _hardware(table.chip), np.log(start), np.asarray(spread))
    top = np.log([MOST.get(name, np.inf) for name in law.start])
    found = least_squares(
        residuals,
        rest[3],
        slopes,  # pyright: ignore[reportArgumentType]
        (-np.inf, top),
        loss=_loss,  # pyright: ignore[reportArgumentType]
        args=rest,
    )
    values = dict(zip(law.start, np.exp(found.x).tolist(), strict=True))
    left = ROWS / INDEPENDENT * np.diag(np.linalg.inv(found.jac.T @ found.jac))
    variances = dict(zip(law.start, left.tolist(), strict=True))
    logs = SCALE * residuals(found.x, *rest)[:ROWS]
    return OperatorFit(table, values, variances, float(np.median(np.abs(np.expm1(logs)))))


def _loss(squares: np.ndarray) -> np.ndarray:
    """Cauchy's loss of rows, and squares of what holds coefficients; with two derivatives."""
    row = np.arange(len(squares)) < ROWS
    slope = np.where(row, 1.0 / (1.0 + squares), 1.0)
    return np.stack([np.where(row, np.log1p(squares), squares), slope, row * -(slope**2)])


@cache
def _hardware(chip: str) -> Hardware:
    return load_system(CHIPS[chip][0]).hardware


@cache
def _programs(name: str) -> tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]:
    """Residuals of rows and of coefficients, compiled, and their slopes."""
    law = LAWS[name]
    held = np.sqrt(ROWS / INDEPENDENT)

    def residuals(
        x: Array, facts: Numbers, seconds: Array, hardware: Hardware, start: Array, spread: Array
    ) -> Array:
        values = dict(zip(law.start, jnp.exp(x), strict=True))
        logs = jnp.log(law.seconds(values, facts, hardware)) - jnp.log(seconds)
        return jnp.append(logs / SCALE, held * (x - start) / spread)

    value, slopes = jax.jit(residuals), jax.jit(jax.jacfwd(residuals))
    return lambda *a: np.asarray(value(*a)), lambda *a: np.asarray(slopes(*a))


def pool_priors(
    done: Iterable[OperatorFit], generations: Sequence[str] = PRIORS_OF
) -> dict[str, OperatorPrior]:
    """A prior of every coefficient: the median over tables of its logarithm, and its deviation.

    The deviation is the robust one over tables, with what a table in the middle leaves open. Tables
    on which the law does not hold are left out.
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for fit in done:
        if fit.good and fit.table.generation in generations:
            for name, path in fit.named().items():
                row = (np.log(fit.values[name]), fit.variances[name], fit.error)
                found.setdefault(path, []).append(row)
    priors = {name: _prior(np.asarray(rows)) for name, rows in found.items()}
    for name in [name for name in priors if name.endswith(".blocked")]:  # over scales by tensor
        whole, part = priors.get(name.replace("blocked", "gemm_8")), priors.pop(name)
        if whole is not None:
            priors[name] = part._replace(value=part.value / whole.value)
    return {name: priors[name] for name in (*COMMON, *sorted(priors)) if name in priors}


def _prior(rows: np.ndarray) -> OperatorPrior:
    logs, left, errors = rows.T
    middle = np.median(logs)
    variance = (DEVIATION * np.median(np.abs(logs - middle))) ** 2 + np.median(left)
    spread = max(float(np.sqrt(variance)), LEAST_SPREAD)
    return OperatorPrior(float(np.exp(middle)), spread, len(rows), float(np.median(errors)))


def toml(priors: Mapping[str, OperatorPrior], version: str) -> str:
    """The file `infer_jax/catalog/published/operators.toml`."""
    lines = [
        "# Priors of kernels for the fit of serving: laws fitted to tables of measured operators.",
        f"# Source: NVIDIA, aisimulate {version} (Apache-2.0),",
        "# aisimulate_core/systems/data, the newest release of each engine on H100, H200, B200,",
        "# B300, GB200, GB300; `python -m infer_jax.calibration.pooled --operators --ship FILE`.",
        "# value: median over tables, hop in seconds. spread: deviation of its logarithm over",
        "# tables, with what one table leaves open. error: median relative error of the law.",
        "",
        "[coefficients]",
    ]
    lines += [
        f'"{name}" = {{ value = {x.value:.4g}, spread = {x.spread:.3f}, tables = {x.tables},'
        f" error = {x.error:.3f} }}"
        for name, x in priors.items()
    ]
    return "\n".join(lines) + "\n"


def summaries(done: Sequence[OperatorFit]) -> list[tuple[str, ...]]:
    """By law, generation and format: tables, those left out, error, and coefficients in words."""
    groups: dict[tuple[str, ...], list[OperatorFit]] = {}
    for fit in done:
        groups.setdefault((fit.table.law, fit.table.generation, fit.table.format), []).append(fit)
    rows = []
    for key, every in groups.items():
        good = [fit for fit in every if fit.good]
        texts = []
        for name in every[0].named():
            values = np.asarray([fit.values[name] for fit in good or every])
            scale, unit = (1e6, " us") if name == "hop" else (1.0, "")
            ends = (float(f"{scale * f(values):.2g}") for f in (np.median, np.min, np.max))
            texts.append("{} {:g} ({:g}-{:g}){}".format(name, *ends, unit))
        error = 100.0 * np.median([fit.error for fit in good or every])
        rows.append((*key, str(len(good)), str(len(every) - len(good)), f"{error:.0f}",
                     ", ".join(texts)))  # fmt: skip
    return rows
