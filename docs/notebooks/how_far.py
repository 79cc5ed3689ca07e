# %% [markdown]
# # How far is my server from the limit?
#
# Five runs of one server, as `vllm bench serve --save-result` writes them: 1 to 64 requests in
# flight. Here they are example data: no server was measured, their times are plausible but made up,
# and the files are written first, with the few fields that are read. "Measured" on this page means
# these times; put your own files in their place.

# %%
import json
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd

import infer_jax as ij

# requests in flight, tokens in, tokens out, mean TTFT and TPOT in ms
RUNS = [
    (1, 1000, 200, 60, 9.1),
    (8, 1000, 200, 75, 11.4),
    (32, 1000, 200, 120, 16),
    (16, 4000, 200, 250, 22),
    (64, 500, 1000, 95, 16.5),
]
folder = Path(mkdtemp())
for many, isl, osl, ttft, tpot in RUNS:
    requests, latency = 8 * many, (ttft + tpot * (osl - 1)) / 1e3
    seconds = requests / many * latency
    said = {"backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct"}
    said |= {"num_prompts": requests, "completed": requests, "max_concurrency": many}
    said |= {"request_rate": "inf", "duration": seconds, "request_throughput": requests / seconds}
    said |= {"total_input_tokens": requests * isl, "total_output_tokens": requests * osl}
    said |= {"output_throughput": requests * osl / seconds}
    said |= {"mean_ttft_ms": ttft, "mean_tpot_ms": tpot}
    (folder / f"c{many}.json").write_text(json.dumps(said))
files = sorted(folder.glob("*.json"))

# %% [markdown]
# ## Calibrate
# The shipped coefficients are the prior; five runs move them as far as they know better. Below:
# predicted against measured (example data), before and after, with the band that holds 80 % of
# new runs.

# %%
MODEL, SYSTEM = "llama-3.1-8b", "h100_sxm"
profile = folder / "mine.toml"
fit = ij.calibrate(MODEL, SYSTEM, files, tp=1, out=profile)
fit.plot()

# %% [markdown]
# What was learnt: two factors on the times first, then coefficients of the model. Where the runs
# say nothing of a coefficient, it stays where it was.

# %%
fit.to_pandas()[["name", "before", "value", "learnt", "verdict"]].round(3)

# %% [markdown]
# ## Where the time goes
# The calibrated profile prices each run term by term; the diamond is the time in its file, here
# example data.

# %%
ij.compare(MODEL, profile, measured=files, tp=1).plot()

# %% [markdown]
# ## The limit
# An ideal server reads its weights and caches at the full bandwidth of the data sheet, computes at
# its peak, and waits for nothing. How many times longer does this one take for a token?

# %%
rows = []
for many, isl, osl, _, tpot in RUNS:
    asked = {"tp": 1, "batch": many, "isl": isl, "osl": osl}
    ideal = ij.estimate(MODEL, SYSTEM, estimator="economics.planned", **asked).estimate
    ms = 1e3 * float(ideal.tpot)
    rows.append({"in_flight": many, "isl": isl, "measured_ms": tpot, "ideal_ms": ms})
far = pd.DataFrame(rows)
far["times_the_limit"] = far["measured_ms"] / far["ideal_ms"]
far.round(2)
