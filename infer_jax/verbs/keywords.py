"""Checks the arguments of a verb by name, before anything is computed."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, Signature, signature
from types import NoneType
from typing import get_args, get_origin

import numpy as np

from infer_jax.errors import InputError
from infer_jax.verbs import checks
from infer_jax.verbs.problems import refuse

Rule = Callable[[str, object], float | None]  # a value of its own where it reads the argument
TEXTS = {str, os.PathLike[str]}


def _each(option: str, value: object) -> None:
    """Raise InputError unless ``value`` is a whole number above 0, or several."""
    several = isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1  # pyright: ignore
    for one in list(value) if several else [value]:  # pyright: ignore[reportArgumentType]
        checks.whole(option, math.nan if one is None else one)


# What a number of that name may be, in every verb that has it.
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("tp", "pp", "ep", "dp", "batch", "concurrency", "isl", "osl"), checks.whole),
    **dict.fromkeys(("max_num_seqs", "top", "nodes", "prefill_tokens", "gpus"), checks.whole),
    **dict.fromkeys(("max_model_len", "max_num_batched_tokens", "block_size"), checks.whole),
    **dict.fromkeys(("prefill_tp", "decode_tp", "prefix_len", "num_prefixes"), checks.whole),
    "drafts": partial(checks.whole, high=64.0),
    **dict.fromkeys(("prefill_instances", "decode_instances"), checks.whole),
    "memory": checks.whole,
    "prompts": partial(checks.whole, high=1e6),
    "seeds": partial(checks.whole, high=1000.0),
    "warmup": partial(checks.whole, low=0.0),
    **dict.fromkeys(("burstiness", "ramp_up", "kv_offloading_size", "swap_space"), checks.above),
    "range_ratio": partial(checks.above, high=1.0),
    "prefix": partial(checks.whole, low=0.0),
    "seed": partial(checks.whole, low=0.0, high=2.0**32 - 1.0),
    "along": partial(checks.whole, low=2.0, high=1000.0),  # each a column of the table
    "total_gpus": partial(checks.whole, high=checks.MOST_GPUS),
    "chunk": checks.whole,
    **dict.fromkeys(("request_rate", "demand", "target_throughput"), checks.above),
    **dict.fromkeys(("price", "region_factor"), checks.above),
    "preference": partial(checks.above, high=100.0),
    **dict.fromkeys(
        ("sm_share", "values_read", "gpu_memory_utilization"), partial(checks.above, high=1.0)
    ),
    "acceptance": partial(checks.between, low=0.0, high=1.0, what="a probability"),
    "confidence": partial(checks.between, low=0.5, high=0.999),
    "pue": partial(checks.between, low=1.0, high=checks.MOST),
    "every": partial(checks.between, low=0.0, high=checks.MOST),
    **dict.fromkeys(("ttft", "tpot", "p99_ttft", "latency"), checks.seconds),
}
UNLIMITED = {("plan", "ttft")}  # limits that the word "none" takes away
SPREAD = ("isl", "osl")  # lengths that may be a text such as "2200±600"
FROM_ZERO = {("frontier", "isl")}  # that decode passes attend to
WORDS = {str: "a text", os.PathLike: "a path", bool: "True or False", Sequence: "several"}


def checked(
    function: Callable[..., object], args: Sequence[object], options: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a verb by name; times that are texts as seconds.

    Raises:
        InputError: a keyword that the verb does not have, an argument too few or too many, or
            one that is not what it must be.
    """
    wanted = signature(function)
    _named(function.__name__, wanted, len(args), options)
    given = wanted.bind(*args, **options).arguments
    return {
        name: _checked(function.__name__, wanted.parameters[name], value)
        for name, value in given.items()
    }


def _named(verb: str, wanted: Signature, count: int, options: Mapping[str, object]) -> None:
    """Raise InputError for an argument that is unknown, too many, given twice or missing."""
    known = wanted.parameters
    first = [p.name for p in known.values() if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            closest = f"{near[0]} is closest; " if near else ""
            raise InputError(verb, "keyword", name, f"{closest}one of {', '.join(known)}")
        if name in first[:count]:
            raise InputError(verb, name, "given twice", "once, by place or by name")
    if count > len(first):
        allowed = f"{', '.join(first)}; the others by name"
        raise InputError(verb, "arguments", f"{count} without a name", allowed)
    for name in (n for n, p in known.items() if p.default is Parameter.empty):
        if name not in options and name not in first[:count]:
            raise InputError(verb, name, "missing", f"{verb}({', '.join(first)}, ...)")


def _checked(verb: str, parameter: Parameter, value: object) -> object:
    """The value of one argument, read where it is a time.

    Raises:
        InputError: a value that the argument cannot have.
    """
    name, kinds = parameter.name, set(get_args(parameter.annotation)) or {parameter.annotation}
    option = f"--{name.replace('_', '-')}"
    if value is None:
        if parameter.default is not None and NoneType not in kinds:
            raise refuse(option, value, "a value, or nothing: leave it out")
        return value
    if (verb, name) in UNLIMITED:
        return checks.seconds(option, value, none=True)
    if name in SPREAD and str in kinds:
        return checks.tokens(option, value, 1)
    if (verb, name) in FROM_ZERO:
        checks.whole(option, value, low=0.0)
        return value
    timed = RULES.get(name) is checks.seconds
    if name in RULES and (timed or not (str in kinds and isinstance(value, str))):
        rule = _each if any(get_origin(kind) is Sequence for kind in kinds) else RULES[name]
        read = rule(option, value)
        return value if read is None else read
    if name not in RULES:
        _kind(option, value, kinds - {NoneType})
    return value


def _kind(option: str, value: object, kinds: set[object]) -> None:
    """Raise InputError unless ``value`` is of one of these kinds, where these are classes."""
    classes = [get_origin(kind) or kind for kind in kinds]
    known = [c for c in classes if isinstance(c, type) and not getattr(c, "_is_protocol", False)]
    if len(known) < len(classes):
        return
    allowed = " or ".join(sorted(WORDS.get(c, f"a {c.__name__}") for c in known))
    if not isinstance(value, (*known, *([np.bool_] if bool in known else []))):
        raise refuse(option, value, allowed)
    lists = [get_args(kind) for kind in kinds if get_origin(kind) is Sequence]
    several = isinstance(value, Sequence) and not isinstance(value, str)
    members = {member for (kind,) in lists for member in get_args(kind) or (kind,)}
    for each in value if several and members <= TEXTS else ():  # pyright: ignore
        if not isinstance(each, str | os.PathLike):
            raise refuse(option, each, allowed)
