"""XLA options for programs that run once, over millions of points, and for gradients."""

from infer_jax.typed_jax import Options

# Unoptimised, without the costly passes, by the older of XLA's two writers of fused loops, which
# takes a third of the time of the newer one, and as one module: options of ``jax.jit`` on a CPU.
# Fusion stays on: unfused, the programs of ``estimate`` take two to six times as long to compile.
QUICK: Options = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}

# Of a large program over some hundred rows: twice as long to compile, a sixth of the time to run.
BRISK: Options = {**QUICK, "xla_backend_optimization_level": 1}


def quick(platform: str) -> Options | None:
    """``QUICK`` on a CPU; other compilers know no such options."""
    return QUICK if platform == "cpu" else None


def wide(platform: str) -> Options | None:
    """For programs over many points, on a CPU: the widest vectors there are.

    A quarter to a half faster than the compiler's 256 bits.
    """
    return {"xla_cpu_prefer_vector_width": 512} if platform == "cpu" else None


def of_gradients(platform: str) -> Options | None:
    """For gradients in reverse mode of large programs, on a CPU: the older writer of fused loops.

    The gradient of the kernels model compiles in a quarter of the time (7 s, not 29 s, of
    processor), that of the serving model by an architecture in a third (2.2 s, not 6.5 s).
    """
    return {"xla_cpu_use_fusion_emitters": False} if platform == "cpu" else None
