"""Start-up of a command: 64-bit numbers, the folder of compiled programs, progress."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import jax

from infer_jax.compiling import keep_programs
from infer_jax.verbs.progress import show_progress

ONE_PIECE = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=100000000"
_quiet = [False]  # by --quiet


def prepare(*, every_device: bool = False) -> None:
    """Set up JAX for one command; call it before anything is traced.

    64-bit numbers, and a folder that keeps compiled programs between commands. Unless
    ``every_device`` or JAX_PLATFORMS says otherwise, the CPU alone is used: one
    configuration or a small grid takes it milliseconds, an accelerator seconds to wake.
    """
    jax.config.update("jax_enable_x64", True)
    if not every_device and not os.environ.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", "cpu")
    keep_programs()


def use_all_cores() -> None:
    """Set up JAX for a sweep: each core of a CPU is a device."""
    prepare(every_device=True)
    with suppress(RuntimeError):  # devices are in use already, in a program that embeds this
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


@contextmanager
def loops_in_one_piece() -> Iterator[None]:
    """Let XLA make one piece of machine code of large loops, in programs compiled within.

    It reads the option once, with the first program of a process, and ignores one it does not know.
    A replay of 20,000 requests then takes 4.1 s of a core and not 6.7 s, start included, and 6.9 s
    and not 10 s where it is compiled first.
    """
    before = os.environ.get("XLA_FLAGS")
    if "xla_backend_extra_options" in (before or ""):  # the user's own
        yield
        return
    os.environ["XLA_FLAGS"] = f"{before or ''} {ONE_PIECE}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before


def set_quiet(quiet: bool) -> None:
    """From here on print the answer alone, or notes and progress, too."""
    _quiet[:] = [quiet]
    show_progress(not quiet)


def is_quiet() -> bool:
    """Whether the answer alone is printed."""
    return _quiet[0]
