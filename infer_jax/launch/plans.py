"""A plan as the servers it needs: degrees of ``planning.Choice`` as a ``Service``."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from infer_jax.catalog import Model, System
from infer_jax.estimators.serving.queued import BUDGET
from infer_jax.launch.checkpoints import checkpoint
from infer_jax.launch.service import Instance, Service, traits
from infer_jax.planning.machines import machine
from infer_jax.specs import UNBOUNDED

DEFAULT = 1024  # requests that vLLM 0.33 runs at most on GPUs of 70 GiB and more, if not set


def service(
    config: str,
    model: Model,
    systems: Sequence[System],
    degrees: Mapping[str, Any],
    batch: float,
    lengths: tuple[float, float],
    formats: tuple[str | None, str | None] = (None, None),
    draft: str | None = None,
    most: float | None = None,
    *,
    spread: bool = False,
) -> Service:
    """A plan as what a server must know.

    ``config`` names the ``model``; ``systems``: of each pool; ``degrees``, ``batch``, ``most``: see
    ``instances``; ``lengths``: tokens of prompt and answer; ``formats``: of weights and cache that
    are asked for; ``draft``: the model that drafts; ``spread``: whether lengths are means, so that
    the longest request is the longest that the model takes.
    """
    machines = [machine(system.hardware, system.title) for system in systems]
    load, drafter = checkpoint(config, *formats), checkpoint(draft) if draft else None
    if drafter is not None and drafter.missing and not load.missing:
        load = load._replace(missing=drafter.missing)
    known = traits(model.architecture)
    bounded = spread and known["limit"] < UNBOUNDED
    return Service(
        load,
        instances(degrees, batch, machines, most),
        isl=math.ceil(lengths[0]),
        context=int(known["limit"]) if bounded else math.ceil(sum(lengths)),
        fitted=bounded,
        draft=drafter.repository if drafter else "",
        **known,
    )


def instances(
    degrees: Mapping[str, Any],
    batch: float,
    machines: Sequence[tuple[int, str]],
    most: float | None = None,
) -> tuple[Instance, ...]:
    """The instances of a plan: one kind, or a pool that prefills and one that decodes.

    ``batch``: requests in flight in an instance (that decodes). ``machines``: (GPUs of a machine,
    maker) of each pool. ``most``: requests that a group may run at most where the number in flight
    varies; where not given, as many as the batch takes.

    >>> instances({"tp": 2, "attention_dp": 1, "ep": 1, "pp": 1, "replicas": 4}, 30, [(8, "")])[0].copies
    4
    """  # noqa: E501
    if "prefill" not in degrees:
        copies = degrees.get("replicas", 1)
        return (_instance(degrees, batch, copies, machines[0], most=most),)
    first, second = degrees["prefill"], degrees["decode"]
    ends = machines[0], machines[-1]
    return (
        _instance(first, first["batch"], first["instances"], ends[0], role="prefill"),
        _instance(second, batch, second["instances"], ends[1], role="decode", most=most),
    )


def _instance(
    degrees: Mapping[str, Any],
    batch: float,
    copies: float,
    machine: tuple[int, str],
    role: str = "",
    most: float | None = None,
) -> Instance:
    chunk = float(degrees.get("chunk", math.inf))
    chunk = chunk if chunk < UNBOUNDED else math.inf
    # arrivals at random fill passes of a budget of tokens
    opened = most is not None and not role
    return Instance(
        tp=int(degrees["tp"]),
        groups=int(degrees["attention_dp"]),
        ep=int(degrees["ep"]),
        pp=int(degrees["pp"]),
        copies=int(copies),
        requests=max(math.ceil(batch - 1e-9), 1),
        chunk=chunk,
        drafts=int(degrees.get("drafts", 0)),
        role=role,
        machine=machine[0],
        maker=machine[1],
        most=0 if most is None else int(min(most, DEFAULT)),
        tokens=int(min(chunk, BUDGET)) if opened else 0,
    )
