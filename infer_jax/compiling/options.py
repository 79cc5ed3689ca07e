"""Which options compile a program that runs once quickly? Compiling takes most of its time."""

from typing import Any

# Unoptimised, without the costly passes, by the older of XLA's two writers of fused loops, which
# takes a third of the time of the newer one, and as one module: options of ``jax.jit`` on a CPU.
# Fusion stays on: unfused, the programs of ``estimate`` take two to six times as long to compile.
QUICK: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def quick(platform: str) -> dict[str, Any] | None:
    """``QUICK`` on a CPU; other compilers know no such options."""
    return QUICK if platform == "cpu" else None
