"""How are programs compiled that run once, or over few rows? Quickly: it takes most of the time."""

from typing import Any

# Unoptimised, without the costly passes, and by the older of XLA's two writers of fused loops,
# which takes a third of the time of the newer one: options of ``jax.jit`` on a CPU.
QUICK: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


def quick(platform: str) -> dict[str, Any] | None:
    """``QUICK`` on a CPU; other compilers know no such options."""
    return QUICK if platform == "cpu" else None
