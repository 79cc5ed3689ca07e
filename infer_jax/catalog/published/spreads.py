"""How far measured runs are from predictions of what no fit has seen, and what plans share of it.

Printed by ``python experiments/silicon.py --confidence`` with ``--cv system``, ``--cv model``,
``--cv groups`` and ``--mode disagg --cv system``, from the rows of silicon_sample.csv.
"""

Within = dict[str, dict[int, tuple[float, float]]]  # by output; by share in per cent, factors

# measured over predicted: between these factors are 50, 80 and 95 % of the clean rows whose system,
# or whose model, was left out of the fit (2755 and 2762), and of 274 runs of pools that prefill
# and decode, of which no fit has seen any
UNSEEN_WITHIN: dict[str, Within] = {
    "system": {
        "tpot": {50: (0.909, 1.138), 80: (0.791, 1.305), 95: (0.639, 1.686)},
        "ttft": {50: (0.809, 1.371), 80: (0.641, 1.780), 95: (0.356, 4.035)},
    },
    "model": {
        "tpot": {50: (0.902, 1.137), 80: (0.765, 1.299), 95: (0.652, 1.647)},
        "ttft": {50: (0.778, 1.388), 80: (0.581, 1.954), 95: (0.345, 4.902)},
    },
    "pools": {
        "tpot": {50: (0.884, 1.179), 80: (0.762, 1.389), 95: (0.516, 1.990)},
        "ttft": {50: (1.889, 8.918), 80: (1.205, 25.35), 95: (0.909, 60.92)},
    },
}
# share of the variance of these errors, as normal scores among rows of their system and engine,
# that is common to the layouts and loads of one model, system, engine and lengths (4244 rows of
# 155 groups that were left out of the fit; one-way analysis of variance)
COMMON = {"tpot": 0.40, "ttft": 0.35}
