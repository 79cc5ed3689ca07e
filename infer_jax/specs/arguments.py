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
# the class of each argument and one of its fields, which a loaded model or system that is passed by
# mistake answers with a sentence of its own
EXPECTED: dict[str, tuple[type, str]] = {
    "arch": (Architecture, "blocks"),
    "hardware": (Hardware, "chip"),
    "workload": (Workload, "isl"),
    "forward": (ForwardPass, "sequences"),
}


def check_arguments(where: str, **given: object) -> None:
    """Check that each argument is of its class; a plan may be of any estimator.

    Raises:
        InputError: an argument is of another class; ``where`` begins the sentence.
    """
    for name, value in given.items():
        if name == "plan":
            others = tuple(cls for cls, _ in EXPECTED.values())
            if not isinstance(value, Spec) or isinstance(value, others):
                raise InputError(where, name, _a(type(value)), f"a Plan; {ORDER}")
            continue
        cls, field = EXPECTED[name]
        if isinstance(value, cls):
            continue
        try:
            getattr(value, field)
        except InputError:  # from a loaded model or system, which names the part to pass
            raise
        except AttributeError:
            pass
        raise InputError(where, name, _a(type(value)), f"{_a(cls)}; {ORDER}")


def checked(method: Method) -> Method:
    """Decorates ``step`` or ``estimate`` of an estimator to check its arguments first."""
    kind = "forward" if method.__name__ == "step" else "workload"

    @wraps(method)
    def checking(
        self: object, arch: object, hardware: object, *rest: object, **named: object
    ) -> object:
        given = {
            "arch": arch,
            "hardware": hardware,
            **dict(zip((kind, "plan"), rest, strict=False)),
        }
        check_arguments(f"{type(self).__name__}.{method.__name__}", **given, **named)
        return method(self, arch, hardware, *rest, **named)

    return checking  # pyright: ignore[reportReturnType]


def _a(cls: type) -> str:
    return f"{'an' if cls.__name__[0] in 'AEIOUaeiou' else 'a'} {cls.__name__}"
