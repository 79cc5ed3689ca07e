# %% [markdown]
# # Design a model for a chip
#
# Llama 3.1 8B was not drawn for one H100 that serves prompts of 4,096 tokens. Which model of the
# same size would be? Free are the width, the layers, the K/V heads, the feedforward and the
# batch; held are the parameters and 30 ms a token.

# %%
import os

import infer_jax as ij

size = {"value": "parameters", "at_least": 7.9e9, "at_most": 8.1e9}
spec = {
    "estimator": "economics.planned",
    "arch": {"model": "llama-3.1-8b"},
    "hardware": {"system": "h100_sxm"},
    "workload": {"isl": 4096, "osl": 512},
    "free": {
        "width": [2048, 8192],
        "depth": [16, 64],
        "kv_heads": {"values": [2, 4, 8, 16, 32]},
        "feedforward_width": [4096, 32768],
        "batch": [16, 512],
    },
    "start": {"batch": 96},
    "objective": {"best": "cost"},
    "limits": {"tpot": 0.030},
    "where": [size, {"value": "aspect", "at_least": 64, "at_most": 160}],
    "search": {"restarts": int(os.environ.get("RESTARTS", "24")), "steps": 80},
}
found = ij.codesign(spec=spec)
found.plot()

# %% [markdown]
# The design beside the model it started from. An ideal server prices both
# (`economics.planned`); only training can say what the design does to quality.

# %%
table = found.to_pandas().set_index("term")
shown = ["cost", "tpot", "ttft", "parameters", "kv_bytes"]
table.loc[shown].assign(ratio=lambda x: x["design"] / x["start"]).round(4)

# %%
design = found.designs[0]
for name, value in design.values.items():
    print(f"{name:36} {design.asked.start[name]:6.0f} -> {value:6.0f}")
