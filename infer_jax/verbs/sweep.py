"""``ij.sweep``: the best of millions of configurations, every point of a space."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, Union

from infer_jax import estimators, sweeps
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Number, Option
from infer_jax.verbs.progress import busy, is_watched

if TYPE_CHECKING:
    from jax import Device

    from infer_jax.sweeps.engine import Progress
    from infer_jax.sweeps.reducers import Reducer
    from infer_jax.sweeps.results import Explanation

MAX_POINTS = 10**15  # points
# also a file, or its tables
SpaceLike = Union["sweeps.Space", str, os.PathLike[str], Mapping[str, object]]
Estimators = Union[str, "estimators.Estimator", Sequence[Union[str, "estimators.Estimator"]]]


@verb
def sweep(
    space: Annotated[SpaceLike, Option.of("SPACE.toml", by_place=True)],
    *,
    keep: Optional["Reducer"] = None,
    estimator: Estimators | None = None,
    out: Annotated[opt.Places | None, Option.of("FILE", many=True)] = None,
    precision: Annotated[str, Option.of()] = "float32",
    checkpoint: Annotated[opt.Place | None, Option.of("FILE")] = None,
    feasible: str | None = None,
    legal: bool = True,
    chunk: Annotated[int | None, opt.WHOLE] = None,
    devices: Sequence["Device"] | None = None,
    every: Annotated[float, Number(0.0)] = 30.0,
    memory: Annotated[int, opt.WHOLE] = 2**28,
    progress: Callable[["Progress"], None] | None = None,
) -> "sweeps.SweepResult":
    """Which of millions of configurations are worth choosing? The same command carries on.

    ``keep`` is ``Pareto``, ``TopK``, ``Best``, ``Histogram``, ``Quantiles`` or ``Everything`` of
    ``infer_jax.sweeps``, ``estimator`` a name, an estimator, or several. ``out`` is the file of the
    result, .parquet, .csv or .json, or of its picture, or a list of both.

    In float32, points within a margin are kept too and decided in float64. ``feasible`` names the
    condition that points must meet, such as ``"decode.feasible"`` to ignore limits of prefill;
    unless ``legal`` is False, points that no engine runs are left out. ``checkpoint`` names a file
    from which the same call carries on, and which is deleted at the end; it lies beside ``out`` if
    it is not given. ``every`` is the seconds between two of them, ``memory`` the bytes of a
    frontier's rows. Points, devices and chunks may be any number; the answer is the same.

    Args:
        space: Axes, and what to keep.
        out: The result, .parquet, .csv or .json; or its picture, .png, .svg, .pdf or .html; repeat
            for both.
        precision: float32, decided in float64 where it is close; or float64.
        checkpoint: Where to carry on from; beside --out if not given.

    Raises:
        InputError: an unknown or unread axis, constraints that nothing keeps, an objective that
            is NaN everywhere, a frontier beyond ``memory``, a foreign checkpoint, a file that
            cannot be written.

    >>> import infer_jax as ij
    >>> from infer_jax.sweeps import Axis, Best, Space
    >>> model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    >>> work = ij.Workload.of(isl=1024, osl=128).replace(batch=Axis.values(1, 2, 4))
    >>> space = Space(model, system, work, ij.Plan.of())
    >>> best = ij.sweep(space, keep=Best("cost"), estimator="economics.planned")
    >>> best.axes(0)["workload.batch"]
    4
    """
    import jax

    from infer_jax.sweeps import writers
    from infer_jax.sweeps.toml import request_of, trusts_of
    from infer_jax.verbs import pictures

    request = request_of(space, keep, estimator, feasible)
    names = pictures.picture_endings(writers.KINDS)
    rows, drawn = pictures.split(out, names, lambda name: Path(name).suffix in writers.KINDS)
    if drawn and isinstance(request.keep, sweeps.Quantiles):
        raise refuse("out", drawn[0], "for a picture a file that keeps rows, or a histogram")
    with busy("reading the space"):
        ready = request.prepared(precision, legal)
    if ready.size > MAX_POINTS:
        text = f"{ready.size:.3g} points"
        raise refuse("SPACE.toml", text, f"at most {MAX_POINTS:.1g}, days at 10^10 points a second")
    if rows is not None:
        writers.check(rows, ready.mark)
        checkpoint = checkpoint or Path(rows).with_name(f".{Path(rows).name}.checkpoint.npz")
    with busy("sweeping") as show:

        def report(p: "Progress") -> None:
            show(f"{p.done / p.total:.1%}, {p.rate:.3g} points/s, {p.seconds_left:.0f} s left")

        result = sweeps.start(
            ready,
            chunk=chunk,
            devices=devices,
            checkpoint=checkpoint,
            every=every,
            memory=memory,
            progress=progress or (report if is_watched() else None),
        )
    source = "" if isinstance(space, sweeps.Space | Mapping) else str(space)
    first = not jax.process_index()
    out = rows if first else None
    result = replace(result, source=source, trust=trusts_of(request, ready), out=out)
    if first:
        if rows is not None:
            result.write(rows)
        for picture in drawn:
            result.draw(picture)
        if checkpoint is not None:
            Path(checkpoint).unlink(missing_ok=True)
    return result


@verb
def explain(space: SpaceLike, at: str, precision: str = "float32") -> "Explanation":
    """One point of a SPACE.toml in full, by its index; nothing is swept.

    Raises:
        InputError: a file that is no space, an index that the grid does not have.
    """
    from infer_jax.sweeps.toml import request_of

    with busy("reading the space"):
        ready = request_of(space, None, None, None).prepared(precision)
    if not (at.isascii() and at.isdigit() and len(at) < 100):
        text = at if len(at) <= 100 else f"{at[:100]}..."
        raise refuse("at", text, "an index, a whole number from 0")
    source = "" if isinstance(space, sweeps.Space | Mapping) else str(space)
    return sweeps.explain(ready, int(at), source)
