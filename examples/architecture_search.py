"""Which shape of an 8-billion-parameter model decodes cheapest on an H100?

    python examples/architecture_search.py

The search follows the gradient of the price over relaxed shapes and batches, then steps on the
lattice of sizes that hardware likes, where the exact model decides. Equal size and normal
proportions keep it from buying speed with emptiness; nobody trained the result. It starts from the
model's own shape, at the largest batch of the axis that its cache leaves room for.
"""

import infer_jax as ij
from infer_jax.design import QualityWrapper
from infer_jax.sweeps import Axis, Best, Constraint, Space

LAYER = "arch.blocks.0"
FREE = {
    "arch.width": Axis.integers(2048, 8192, 128),
    f"{LAYER}.count": Axis.integers(16, 64),
    f"{LAYER}.attention.kv_heads": Axis.values(2, 4, 8, 16, 32),
    f"{LAYER}.feedforward.width": Axis.integers(4096, 32768, 128),
    "workload.batch": Axis.values(16, 32, 64, 96, 128, 192, 256, 384, 512),
}
START = {
    "arch.width": 4096,
    f"{LAYER}.count": 32,
    f"{LAYER}.attention.kv_heads": 8,
    f"{LAYER}.feedforward.width": 14336,
    "workload.batch": 96,
}


def main(restarts: int = 24, steps: int = 80) -> None:
    """Search, and print the design beside the model it started from."""
    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    space = Space(
        model.architecture,
        system.hardware,
        ij.Workload.of(isl=4096, osl=512),
        ij.Plan.of(),
        axes=FREE,
        where=[
            Constraint(value="parameters", at_least=7.9e9, at_most=8.1e9),
            Constraint(value="aspect", at_least=64, at_most=160),
            Constraint(ratio=(f"{LAYER}.feedforward.width", "arch.width"), at_most=4),
        ],
    )
    estimator = QualityWrapper.of(target=ij.make("economics.planned", system.coefficients))
    best = Best("cost", under={"tpot": 0.030})  # seconds
    found = ij.optimise(estimator, space, best, start=START, restarts=restarts, steps=steps)
    for path, value in found.values.items():
        print(f"{path:34}{START[path]:8.0f} ->{value:8.0f}")
    for name in ("cost", "tpot", "parameters", "kv_bytes"):
        print(f"{name:34}{found.start_terms[name]:8.3g} ->{found.terms[name]:8.3g}")
    counts = "{gradients:,} gradients, {lattice:,} rounded designs, {restarts} restarts"
    print(f"{found.gain:.2f} times cheaper: {counts.format(**found.counts)}")


if __name__ == "__main__":
    try:
        main()
    except ij.InputError as error:  # such as an extra that is not installed
        raise SystemExit(str(error)) from None
