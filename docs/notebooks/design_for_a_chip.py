# %% [markdown]
# # Design a model for a chip
#
# Llama 3.1 8B was not drawn for one H100 that serves prompts of 4,096 tokens. Which model of the
# same size would be? Free are the width, the layers, the feedforward and the batch; held are the
# parameters, 30 ms a token, and shapes such as released models have.

# %%
import os

import infer_jax as ij

spec = {
    "estimator": "economics.planned",
    "arch": {"model": "llama-3.1-8b"},
    "hardware": {"system": "h100_sxm"},
    "workload": {"isl": 4096, "osl": 512},
    "free": {
        "width": [2048, 8192],
        "depth": [16, 64],
        "feedforward_width": [4096, 32768],
        "batch": [16, 1024],
    },
    "start": {"batch": 96},
    "objective": {"best": "cost"},
    "limits": {"tpot": 0.030},
    "where": [
        {"value": "parameters", "at_least": 7.9e9, "at_most": 8.1e9},
        {"value": "aspect", "at_least": 64, "at_most": 160},  # width over layers
        {"ratio": ["arch.blocks.0.feedforward.width", "arch.width"], "at_most": 6},
    ],
    "search": {"restarts": int(os.environ.get("RESTARTS", "24")), "steps": 80},
}
found = ij.codesign(spec=spec)
found.plot()

# %% [markdown]
# The design beside the model it started from. An ideal server prices both
# (`economics.planned`), which runs more requests at once than a server does; only training can say
# what the design does to quality.

# %%
table = found.to_pandas().set_index("term")
shown = ["cost", "tpot", "ttft", "parameters", "kv_bytes"]
sizes = table.loc[shown].assign(ratio=lambda x: x["design"] / x["start"])
sizes.map(lambda x: f"{x:.4g}" if isinstance(x, float) else x)

# %%
design = found.designs[0]
for name, value in design.values.items():
    print(f"{name:36} {design.spec.start[name]:6.0f} -> {value:6.0f}")
