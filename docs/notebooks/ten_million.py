# %% [markdown]
# # Ten million deployments, in pandas
#
# What is the cheapest way to give every request 30 tokens a second, and how does it change with
# the length of the prompt? A point is a prompt length, a number of requests in flight, a layout
# and one of two systems, and gets the full estimate of a loaded server.

# %%
import os

import pandas as pd

import infer_jax as ij
from infer_jax.sweeps import Axis, Best, Space

points = float(os.environ.get("POINTS", "1e7"))
TP, PP, SYSTEMS = (1, 2, 4, 8), (1, 2), ("h100_sxm", "h200_sxm")
prompts = 256 if points > 1e6 else 16
batches = round(points / (prompts * len(TP) * len(PP) * len(SYSTEMS)))
space = Space(
    arch=ij.load_model("llama-3.1-70b", quant="fp8"),
    hardware=[ij.load_system(name) for name in SYSTEMS],
    workload=ij.Workload.of(osl=512).replace(
        isl=Axis.log2(256, 32768, prompts), batch=Axis.log2(1, 512, batches)
    ),
    plan=ij.Plan.of().replace(tp=Axis.values(*TP), pp=Axis.values(*PP)),
)

# %% [markdown]
# The grid is not stored: points are evaluated chunk by chunk, in float32, and close cases decided
# in float64. Kept is the cheapest point of each system and prompt length within the limits. All
# of this page took 40 s of processor on two cores, start and compilation included; `POINTS` in
# the environment sets another number.

# %%
limits = {"tpot": 1 / 30, "ttft": 2.0}  # seconds
keep = Best("cost", under=limits, per=("hardware", "workload.isl"))
kept = ij.sweep(space, keep=keep, estimator="serving")
kept.plot()

# %%
print(f"{int(kept.provenance['points']):,} points, {len(kept)} kept")

# %% [markdown]
# ## Which layout, for which prompts?
# The range of prompt lengths for which each layout is the cheapest, with dollars per million
# output tokens and requests in flight at its ends.

# %%
table = kept.to_pandas()
group = table.groupby(["hardware", "plan.tp", "plan.pp"])
ranges = group[["workload.isl", "workload.batch", "cost", "ttft"]].agg(["min", "max"])
ranges.round(2)

# %% [markdown]
# ## Where does the time of a token go?
# Every term of the time is a column, too: shares of the largest, in the mean over five ranges of
# prompt lengths.

# %%
terms = table.filter(like="decode.terms.").div(table["decode.time"], axis=0)
terms.columns = [name.removeprefix("decode.terms.") for name in terms]
lengths = pd.cut(table["workload.isl"], [255, 1024, 4096, 8192, 16384, 32769], precision=0)
share = terms.groupby(lengths, observed=True).mean()
share[share.mean().nlargest(5).index].round(2)
