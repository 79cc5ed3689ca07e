# %% [markdown]
# # How far is my server from the limit?
#
# Nine runs of one measured server: gpt-oss-120b on one H200 under vLLM 0.22, with 1 to 256 requests
# in flight, about 7,200 tokens in and 900 out. The means of TTFT and TPOT are those that
# [GloriaXimingLu/inferencex-profiling](https://github.com/GloriaXimingLu/inferencex-profiling)
# published (at 237385b, files `results_exp_sweep_c*.json`); they are among the rows that the
# shipped coefficients were fitted to. Files of `vllm bench serve --save-result` take the place of
# the table for a server of yours.

# %%
from pathlib import Path

import pandas as pd

import infer_jax as ij

here = Path.cwd()
checkout = next(x for x in (here, *here.parents) if (x / "examples/gpt_oss_h200.csv").exists())
RUNS = checkout / "examples/gpt_oss_h200.csv"
runs = pd.read_csv(RUNS)
runs[["concurrency", "isl", "osl", "completed", "ttft_mean_ms", "tpot_mean_ms"]]

# %% [markdown]
# ## Calibrate
# The shipped coefficients are the prior; nine runs move them as far as they know better. Below:
# predicted against measured times, before and after, each run predicted by a fit to the others,
# with the band that holds 80 % of new runs.

# %%
MODEL, SYSTEM = "gpt-oss-120b", "h200_sxm"
fit = ij.calibrate(MODEL, SYSTEM, RUNS)
fit.plot()

# %% [markdown]
# Median and worst errors, in per cent: by the data sheet alone, by the coefficients that are
# shipped, and by a calibration to the other runs.

# %%
errors = pd.DataFrame(
    {"by": by, "output": output.upper(), "median": one.median, "worst": one.worst}
    for by, outputs in fit.errors.items()
    for output, one in outputs.items()
)
errors.pivot(index="by", columns="output").loc[["sheet", "before", "held_out"]].round(1)

# %% [markdown]
# ## Where the time goes
# What each run spends its time on, by the shipped coefficients; diamonds are the measured times.

# %%
ij.compare(MODEL, SYSTEM, measured=RUNS).plot()

# %% [markdown]
# ## The limit
# An ideal server reads its weights and caches at the full bandwidth of the data sheet, computes at
# its peak, and waits for nothing. How many times longer does the measured one take for a token?
# (The caches of 256 requests do not fit at once: in the last run some wait, and the limit is of
# all.)

# %%
ideal = []
for run in runs.itertuples():
    asked = {"tp": 1, "batch": run.concurrency, "isl": run.isl, "osl": run.osl}
    one = ij.estimate(MODEL, SYSTEM, estimator="economics.planned", **asked)
    ideal.append(1e3 * float(one.estimate.tpot))
far = runs[["concurrency", "tpot_mean_ms"]].assign(ideal_ms=ideal)
far.assign(times_the_limit=far["tpot_mean_ms"] / far["ideal_ms"]).round(2)
