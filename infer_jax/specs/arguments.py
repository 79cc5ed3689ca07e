"""Checks that each argument of an estimator is the spec it should be.

Types alone are looked at, so that tracers, axes and any numbers within pass at no cost.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from infer_jax.errors import InputError
from infer_jax.specs.architecture import Architecture
from infer_jax.specs.fields import Spec
from infer_jax.specs.hardware import Hardware
from infer_jax.specs.workload import ForwardPass, Workload

Method = TypeVar("Method", bound=Callable[..., object])

ORDER = "arguments are arch, hardware, workload (of a step: forward), plan"
EXPECTED: dict[str, type] = {
    "arch": Architecture,
    "hardware": Hardware,
    "workload": Workload,
    "forward": ForwardPass,
}


def take_arguments(where: str, **arguments: object) -> dict[str, object]:
    """The arguments as trees of numbers, each of its class; a plan may be of any estimator.

    A loaded model stands for its architecture, a loaded system for its hardware.

    Raises:
        InputError: an argument is of another class; ``where`` begins the sentence.
    """
    trees: dict[str, object] = {}
    for name, value in arguments.items():
        tree = value if isinstance(value, Spec) else getattr(value, "tree", value)
        if name == "plan":
            right = isinstance(tree, Spec) and not isinstance(tree, tuple(EXPECTED.values()))
            allowed = "a Plan"
        else:
            right, allowed = isinstance(tree, EXPECTED[name]), _a(EXPECTED[name])
        if not right:
            raise InputError(where, name, _a(type(value)), f"{allowed}; {ORDER}")
        trees[name] = tree
    return trees


def checked(method: Method) -> Method:
    """Decorates ``step`` or ``estimate`` of an estimator to check its arguments first."""
    names = ("arch", "hardware", "forward" if method.__name__ == "step" else "workload", "plan")

    @wraps(method)
    def checking(self: object, *positional: object, **named: object) -> object:
        arguments = dict(zip(names, positional, strict=False)) | named
        return method(
            self, **take_arguments(f"{type(self).__name__}.{method.__name__}", **arguments)
        )

    return checking  # pyright: ignore[reportReturnType]


def _a(cls: type) -> str:
    return f"{'an' if cls.__name__[0] in 'AEIOUaeiou' else 'a'} {cls.__name__}"
