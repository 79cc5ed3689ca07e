"""The default space of a design: a model's heads, experts, split and batch.

The loop of InferSim's technical report (2025), Figure 5: choose a layout, compare with the limits
on TTFT, TPOT and throughput, change the model, repeat. Here one search varies all of these at once.
"""

from collections.abc import Mapping

from infer_jax.catalog import load_model
from infer_jax.design.names import paths
from infer_jax.physics import decoder
from infer_jax.specs import Architecture
from infer_jax.sweeps.paths import by_path

SHAPE = ("heads", "kv_heads", "kv_rank", "experts", "active", "expert_width")
LESS, MORE = 4.0, 2.0  # a number of the model may fall to a quarter and double
BAND = 0.02  # total and active parameters stay within this share: a model of the same class


def default_tables(
    model: str, hardware: str, estimator: str, isl: float, osl: float, limits: Mapping[str, float]
) -> dict[str, object]:
    """The tables of a SPEC.toml of least cost within limits on ``ttft``, ``tpot``, ``throughput``.

    Raises:
        InputError: no such model.
    """
    arch = load_model(model).architecture
    return {
        "estimator": estimator,
        "arch": {"model": model},
        "hardware": {"system": hardware},
        "workload": {"isl": isl, "osl": osl},
        "objective": {"best": "cost"},
        "limits": dict(limits),
        "free": _free(arch),
        "where": _alike(arch),
    }


def _free(arch: Architecture) -> dict[str, object]:
    """Ranges around the model's own attention and feedforward sizes; layout and batch."""
    flat = {f"arch.{path}": float(x) for path, x in by_path(arch).items()}
    known = paths(arch)
    mixture = "experts" in known
    free: dict[str, object] = {"tp": [1, 16], "batch": [1, 8192]}
    if mixture:
        free["ep"] = [1, 256]
    for name in (*SHAPE, *(() if mixture else ("feedforward_width",))):
        if name in known:
            now = flat[known[name][0]]
            free[name] = [max(1.0, now // LESS), MORE * now]
    return free


def _alike(arch: Architecture) -> list[dict[str, object]]:
    """Total and active parameters within ``BAND`` of the model's."""
    sizes = {
        "parameters": float(decoder.total(decoder.parameters(arch).values())),
        "active": float(decoder.active_parameters(arch)),
    }
    return [
        {"value": name, "at_least": (1.0 - BAND) * size, "at_most": (1.0 + BAND) * size}
        for name, size in sizes.items()
    ]
