"""AMD's generations fitted: what the make shares, each generation's ratio to it, and builds.

The rows are InferenceX's closed loops without drafts (TPOT), ROCm's batches of vLLM (latency) and
offline throughput, and MLPerf's,
of MI300X (CDNA 3) and MI355X (CDNA 4). All other coefficients stay as they were fitted to
NVIDIA's rows. A value of a generation is the make's times its ratio (a share: to the power of
it), so that a third generation would be the make's with the spread of the ratios. Shares of
memory and of links were fitted, too, and came out as NVIDIA's. Launch gaps have a factor for each
early build (chip, engine and day), for software of different weeks differs by up to three times
on one machine; those from ``MATURE`` on, and AMD's own images, are the standard, with factor 1,
and so is a build that is not known.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._validation.estimates import AS_STARTED, LAWS, Loop, stacked
from experiments._validation.row import Row
from infer_jax.calibration import CAUCHY, FitProblem, Linearised, Prior
from infer_jax.estimators.serving import Deployment, Generation, Serving
from infer_jax.specs import Spec, number, spec

GENERATIONS = ("cdna3", "cdna4")
CHIPS = ("mi300x", "mi325x", "mi355x")
OUTPUTS = ("tpot", "latency", "throughput")  # the first that a row has is fitted
SHARES = ("gemm_16", "gemm_8", "gemm_4")
FIELDS = ("gap", "grouped", *SHARES)
SHARED = 3 * len(FIELDS)  # parameters before those of builds
SCALE, STEPS, TOLERANCE = 0.08, 20, 1e-6
# what is believed of the make before its rows: Hopper's shares and launches, within what Hopper and
# Blackwell differ by and more; of a generation beside its make; of a build beside the others
MAKE = {
    "gap": Prior(1.0, 0.5),
    "grouped": Prior(1.0, 0.5),
    "gemm_16": Prior(0.6, 0.3),
    "gemm_8": Prior(0.44, 0.3),
    "gemm_4": Prior(0.4, 0.3),
}
GENERATION, BUILD = 0.2, Prior(1.3, 0.4)
MATURE = "2026-05"  # builds from then on
OWN = ("atom", "vllm")  # engines of AMD's own images


@spec
class Chip(Spec):
    """The coefficients of a make, those of ``Generation`` that are fitted."""

    gap: Array = number("launch gaps over Hopper's", kind="size")
    grouped: Array = number("products of experts over dense ones, over Hopper's", kind="size")
    gemm_16: Array = number("share of the 16-bit peak", kind="fraction", high=1)
    gemm_8: Array = number("share of the 8-bit peak", kind="fraction", high=1)
    gemm_4: Array = number("share of the 4-bit peak", kind="fraction", high=1)


@spec
class Ratio(Spec):
    """A generation's own, over its make's: factors, and exponents of shares."""

    gap: Array = number("factor", kind="size", default=1.0)
    grouped: Array = number("factor", kind="size", default=1.0)
    gemm_16: Array = number("exponent", kind="size", default=1.0)
    gemm_8: Array = number("exponent", kind="size", default=1.0)
    gemm_4: Array = number("exponent", kind="size", default=1.0)


@spec
class Build(Spec):
    """A build's launch gaps over those of the mean build."""

    gap: Array = number("factor", kind="size", default=1.0)


Tree = tuple[Any, ...]  # Chip, Ratio of CDNA 3, Ratio of CDNA 4, then a Build each


def build_of(row: Row) -> str:
    """The software of a row, as far as it is told: chip, framework and day."""
    return f"{row.system} {row.group.split()[2]} {row.date}"


def fitted(row: Row) -> bool:
    """Whether a row is fitted: AMD's, in one pool without drafts, with the time that is fitted."""
    if row.system not in CHIPS or row.asked not in ("loop", "batch"):
        return False
    return isinstance(row.plan, Deployment) and float(row.plan.drafts) == 0.0


def output(row: Row) -> str:
    """The metric of a row that is fitted."""
    return next(name for name in OUTPUTS if name in row.measured)


def start(builds: int) -> Tree:
    """Where the fit begins: at what is believed."""
    make = Chip.of(**{name: prior.value for name, prior in MAKE.items()})
    return (make, Ratio.of(), Ratio.of(), *(Build.of() for _ in range(builds)))


def of_generation(field: str, make: Any, own: Any) -> Any:
    """A generation's coefficient: the make's times its ratio, a share to the power of it."""
    return make**own if field in SHARES else make * own


def generation(other: Generation, make: Chip, ratio: Ratio) -> Generation:
    """A generation of a make, in all else as ``other``."""
    own = {n: of_generation(n, getattr(make, n), getattr(ratio, n)) for n in FIELDS}
    return other.replace(**own)


def placed(model: Serving, tree: Tree) -> Serving:
    """The estimator with both generations."""
    make, third, fourth, *_ = tree
    return model.replace(
        cdna3=generation(model.cdna3, make, third), cdna4=generation(model.cdna4, make, fourth)
    )


def base() -> Serving:
    """The coefficients that are not fitted here."""
    return Serving.of().replace(**AS_STARTED)


def problem(rows: Sequence[Row], builds: Sequence[str]) -> FitProblem:
    """The fit of all parameters to the rows' times."""
    tree = start(len(builds))
    names = [f"{i}.{field}" for i in range(3) for field in FIELDS]
    names += [f"{3 + i}.gap" for i in range(len(builds))]
    priors = {f"0.{n}": prior for n, prior in MAKE.items()}
    priors |= {f"{i}.{n}": Prior(1.0, GENERATION) for i in (1, 2) for n in FIELDS}
    priors |= {f"{3 + i}.gap": BUILD for i in range(len(builds))}
    return Linearised.of(
        predictor(rows, builds),
        [row.measured[output(row)] for row in rows],
        tree,
        names,
        priors=priors,
        scale=SCALE,
        loss=CAUCHY,
        tolerance=TOLERANCE,
    )


def predictor(rows: Sequence[Row], builds: Sequence[str]) -> Any:
    """The times of the rows in seconds, each by the factor of its build (1 if it is not listed)."""
    places = {name: i + 1 for i, name in enumerate(builds)}
    parts = [
        (
            index,
            rows[index[0]].asked,
            given,
            np.asarray([places.get(build_of(rows[i]), 0) for i in index]),
        )
        for index, given in stacked(rows, base())
    ]

    which = np.asarray([OUTPUTS.index(output(row)) for row in rows])

    def predict(tree: Tree) -> Array:
        model = placed(base(), tree)
        factors = jnp.stack([jnp.ones_like(tree[0].gap), *(build.gap for build in tree[3:])])

        def one(asked: str, given: Loop, build: Array) -> Array:
            own = model.replace(
                cdna3=model.cdna3.replace(gap=model.cdna3.gap * factors[build]),
                cdna4=model.cdna4.replace(gap=model.cdna4.gap * factors[build]),
            )
            found = LAWS[asked](own, given)
            return jnp.stack([found.get(name, jnp.asarray(1.0)) for name in OUTPUTS])

        times = [
            jax.vmap(lambda g, b, asked=asked: one(asked, g, b))(given, build)
            for _, asked, given, build in parts
        ]
        order = np.argsort(np.concatenate([index for index, *_ in parts]))
        every = jnp.concatenate(times)[order]
        return jnp.take_along_axis(every, which[:, None], axis=1)[:, 0]

    return predict


def early(rows: Sequence[Row]) -> list[str]:
    """The builds of rows that have a factor of their own, in order."""
    found = {build_of(row) for row in rows if row.date < MATURE}
    return sorted(name for name in found if name.split()[1] not in OWN)
