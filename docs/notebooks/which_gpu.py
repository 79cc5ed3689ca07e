# %% [markdown]
# # Which GPU should I rent?
#
# A 70B model in 8 bits, prompts of 4,096 tokens and answers of 512. The first token within a
# second, then 50 tokens a second. Three GPUs can be had; what they cost an hour is in their
# profiles, with the source.

# %%
import infer_jax as ij

MODEL, SYSTEMS = "llama-3.1-70b", ["h100_sxm", "h200_sxm", "b200_sxm"]
limits = {"quant": "fp8", "total_gpus": 8, "ttft": "1s", "tpot": "20ms"}
found = ij.plan(MODEL, SYSTEMS, **limits)
found.plot()

# %% [markdown]
# Every legal layout and batch of each system was tried, in one pool and with prefill and decode
# apart. The best plan of each system, in pandas; times are means, dollars are per million
# tokens, input and output together.

# %%
table = found.to_pandas()
names = {"blended_cost_per_mtok_usd": "usd_per_mtok"}
best = table.rename(columns=names).groupby("hardware", sort=False).first()
best[["layout", "gpus", "ttft_ms", "tpot_ms", "usd_per_mtok", "binds"]].round(3)

# %% [markdown]
# ## At which rent would another GPU be the better one?
# Dollars are proportional to the rent of a GPU-hour, so the break-even follows from one division.

# %%
rent = [float(ij.load_system(name).hardware.price) for name in best.index]
best["rent"] = rent
best["break_even_rent"] = best["rent"] * best["usd_per_mtok"].min() / best["usd_per_mtok"]
best[["usd_per_mtok", "rent", "break_even_rent"]].round(3)

# %% [markdown]
# ## What starts it
# The result has the command of each engine that can run the best plan, by the options of a
# version that it names.

# %%
for step in found.launch["vllm"].steps:
    print(step.where)
    print(step.command)
