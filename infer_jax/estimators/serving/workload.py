"""Facts about requests beyond their mean lengths, and where their prefixes are cached."""

import dataclasses

import jax.numpy as jnp
from jax import Array

from infer_jax.specs import UNBOUNDED, Workload, number, spec

ANSWER = ("no", "yes")


@spec
class ServingWorkload(Workload):
    """A workload, with how its lengths were drawn and where its prefixes are cached."""

    fixed: Array = number(
        "1 where a benchmark gives every request the same lengths, so that they run in lock-step",
        kind="choice",
        high=1,
        default=0.0,
        choices=ANSWER,
    )
    nominal: Array = number(
        "1 where isl and osl are the largest of lengths drawn at random, not their means",
        kind="choice",
        high=1,
        default=0.0,
        choices=ANSWER,
    )
    waves: Array = number(
        "requests of a benchmark for each one in flight, of which the first all come at once;"
        " unbounded: a server that runs on",
        kind="count",
        low=1,
        default=UNBOUNDED,
    )
    common: Array = number(
        "share of the cached prompt that all requests have in common, held once",
        kind="fraction",
        high=1,
        default=0.0,
    )
    from_host: Array = number(
        "share of the cached prompt that is fetched from the host's memory",
        kind="fraction",
        high=1,
        default=0.0,
    )
    from_disk: Array = number(
        "share of the cached prompt that is fetched from disk",
        kind="fraction",
        high=1,
        default=0.0,
    )


def requests(workload: Workload) -> ServingWorkload:
    """``workload`` as a ``ServingWorkload``; by default its lengths are true means and differ."""
    if isinstance(workload, ServingWorkload):
        return workload
    given = {f.name: getattr(workload, f.name) for f in dataclasses.fields(Workload)}
    own = {f.name for f in dataclasses.fields(ServingWorkload)} - set(given)
    given |= dict.fromkeys(own, jnp.asarray(0.0)) | {"waves": jnp.asarray(UNBOUNDED)}
    return ServingWorkload(**given)
