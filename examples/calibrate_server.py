"""How fast will my server be at a load I have not measured? Fit five runs, predict the sixth.

    python examples/calibrate_server.py

The runs are of Llama 3.1 70B in FP8 under vLLM on eight H100, measured on 2025-10-29: rows of
silicon_sample.csv in aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0). Their lengths were drawn
between 80 and 100 % of 1,024 or 8,192; the means stand here.
"""

import tempfile
from pathlib import Path

import jax

import infer_jax as ij
from infer_jax.catalog.measurements import read_runs
from infer_jax.estimators import Deployment, Serving, ServingWorkload

RUNS = """\
engine,tp,isl,osl,concurrency,ttft_mean_ms,tpot_mean_ms
vllm,8,922,922,4,70.41,9.114
vllm,8,922,922,16,93.01,11.39
vllm,8,922,922,64,184.8,15.45
vllm,8,7373,922,8,360.7,11.59
vllm,8,7373,922,32,689.2,21.61
"""
UNSEEN = {"isl": 7373, "osl": 922, "batch": 64}, 1.150255, 34.4826e-3  # load, TTFT and TPOT in s


def main() -> None:
    """Fit, and print what was learnt and the prediction before and after."""
    jax.config.update("jax_enable_x64", True)
    model, system = ij.load_model("llama-3.1-70b", quant="fp8"), ij.load_system("h100_sxm")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "runs.csv")  # yours: any file that docs/formats.md names
        file.write_text(RUNS)
        runs = read_runs(file)
    estimator = Serving.of(engine="vllm").fitted(system.coefficients.get("serving", {}))
    calibrated = ij.calibrate_server(estimator, model.architecture, system.hardware, runs)
    for name, (low, high) in calibrated.interval(0.8).items():
        value = calibrated.fit.values[name]
        print(f"{name:24}{value:10.3g}   80 % within {low:.3g} and {high:.3g}")

    load, ttft, tpot = UNSEEN
    answer = jax.jit(type(estimator).estimate)
    work, plan = ServingWorkload.of(**load), Deployment.of(tp=8)
    print(f"{'a load not measured':24}{'TTFT, s':>10}{'TPOT, ms':>10}")
    for title, one in (("shipped profile", estimator), ("calibrated", calibrated.fit.tree)):
        estimate = answer(one, model.architecture, system.hardware, work, plan)
        print(f"{title:24}{float(estimate.ttft):10.3f}{1e3 * float(estimate.tpot):10.2f}")
    print(f"{'measured':24}{ttft:10.3f}{1e3 * tpot:10.2f}")


if __name__ == "__main__":
    try:
        main()
    except ij.InputError as error:  # such as an extra that is not installed
        raise SystemExit(str(error)) from None
