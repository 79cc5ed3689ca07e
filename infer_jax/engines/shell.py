"""Shell commands of an instance, on one machine or on several."""

import shlex
from collections.abc import Callable, Sequence

from infer_jax.engines.launches import PORTS, Instance, Step


class Shell(str):
    """A word that the shell expands: not quoted."""


def machines(one: Instance, fits: Callable[[int], bool] = lambda _: True) -> int:
    """Machines of one instance: the fewest equal parts that ``fits`` accepts.

    0 where there are none.
    """
    least = -(-one.gpus // one.machine)
    even = (n for n in range(least, one.gpus + 1) if one.gpus % n == 0)
    return next((n for n in even if n == 1 or fits(n)), 0)


def division_obstacles(one: Instance, fits: Callable[[int], bool] = lambda _: True) -> list[str]:
    """Why an instance cannot be spread over machines, where it cannot."""
    if machines(one, fits):
        return []
    return [f"{one.gpus} GPUs do not divide over machines of {one.machine}"]


def where(one: Instance, node: str = "") -> str:
    """Which machines run a command, in words."""
    ports = f" ({PORTS[one.role]}, {PORTS[one.role] + 1}...)" if one.role else ""
    copies = f"each of {one.copies} instances, on GPUs and a port{ports} of its own"
    return ", ".join(word for word in (one.role, copies if one.copies > 1 else "", node) if word)


def visible(one: Instance) -> str:
    """The environment that restricts an instance to its GPUs of a shared machine."""
    if one.first < 0:
        return ""
    return f"CUDA_VISIBLE_DEVICES={','.join(str(one.first + i) for i in range(one.gpus))} "


def line(program: str, flags: Sequence[object]) -> str:
    """A shell command with one option on each line, its values behind it."""
    words = [program]
    for flag in flags:
        word = flag if isinstance(flag, Shell) else shlex.quote(str(flag))
        if str(flag).startswith("--"):
            words.append(str(flag))
        else:
            words[-1] += f" {word}"
    return " \\\n  ".join(words)


def per_machine(
    one: Instance,
    program: str,
    flags: Sequence[object],
    nodes: int,
    address: Sequence[object],
    others: Sequence[object] = (),
) -> list[Step]:
    """The commands of an instance on several machines: of the first, and of the others.

    ``address``: the option that says where the first is; ``others``: what the others add.
    """
    several = [*flags, "--nnodes", nodes, *address, "--node-rank"]
    rest = "machine 1" if nodes == 2 else f"machines RANK=1 to {nodes - 1}"
    rank = 1 if nodes == 2 else Shell('"$RANK"')
    return [
        Step(where(one, "machine 0, whose address is HEAD"), line(program, [*several, 0])),
        Step(where(one, rest), line(program, [*several, rank, *others])),
    ]
