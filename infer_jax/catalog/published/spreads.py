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
        "tpot": {50: (0.912, 1.135), 80: (0.793, 1.287), 95: (0.655, 1.670)},
        "ttft": {50: (0.776, 1.369), 80: (0.624, 1.850), 95: (0.414, 3.864)},
    },
    "model": {
        "tpot": {50: (0.916, 1.127), 80: (0.794, 1.287), 95: (0.656, 1.661)},
        "ttft": {50: (0.791, 1.315), 80: (0.603, 1.896), 95: (0.389, 4.296)},
    },
    "pools": {
        "tpot": {50: (0.865, 1.175), 80: (0.743, 1.386), 95: (0.520, 1.871)},
        "ttft": {50: (1.162, 4.624), 80: (0.747, 11.29), 95: (0.415, 31.77)},
    },
}
# share of the variance of these errors, as normal scores among rows of their system and engine,
# that is common to the layouts and loads of one model, system, engine and lengths (4244 rows of
# 155 groups that were left out of the fit; one-way analysis of variance)
COMMON = {"tpot": 0.39, "ttft": 0.38}
