"""Errors of predictions for systems and models outside the fit, and the part that plans share.

Printed by ``python experiments/silicon.py --confidence`` with ``--cv system``, ``--cv model``,
``--cv groups`` and ``--mode disagg --cv system``, from the rows of silicon_sample.csv; ``make`` by
``python experiments/makes.py``, from those of InferenceX.
"""

Within = dict[str, dict[int, tuple[float, float]]]  # by output; by share in per cent, factors

# measured over predicted: these factors enclose 50, 80 and 95 % of the clean rows whose system,
# or whose model, was left out of the fit (2755 and 2762), and of 274 runs of pools that prefill
# and decode, of which no fit has seen any; make: 211 rows of AMD's chips with Hopper's coefficients
UNSEEN_WITHIN: dict[str, Within] = {
    "system": {
        "tpot": {50: (0.877, 1.130), 80: (0.712, 1.299), 95: (0.598, 1.701)},
        "ttft": {50: (0.731, 1.346), 80: (0.599, 1.854), 95: (0.421, 3.965)},
    },
    "model": {
        "tpot": {50: (0.914, 1.121), 80: (0.830, 1.308), 95: (0.719, 1.685)},
        "ttft": {50: (0.791, 1.297), 80: (0.643, 1.903), 95: (0.393, 4.277)},
    },
    "make": {
        "tpot": {50: (1.001, 1.555), 80: (0.936, 1.857), 95: (0.847, 2.288)},
        "ttft": {50: (0.410, 0.850), 80: (0.298, 1.538), 95: (0.246, 2.207)},
    },
    "pools": {
        "tpot": {50: (0.875, 1.188), 80: (0.759, 1.396), 95: (0.525, 1.923)},
        "ttft": {50: (1.199, 4.880), 80: (0.779, 11.81), 95: (0.417, 34.05)},
    },
}
# share of the variance of these errors, as normal scores among rows of their system and engine,
# that is common to the layouts and loads of one model, system, engine and lengths (4244 rows of
# 155 groups that were left out of the fit; one-way analysis of variance)
COMMON = {"tpot": 0.35, "ttft": 0.36}
