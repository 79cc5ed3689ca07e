"""Every layout of a model that an engine runs, on instances that fill machines.

An instance of 6 GPUs on machines of 8 leaves 2 that no other of its kind can use, or shares a
machine with another and crosses the slower network inside a tensor-parallel group.
"""

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from infer_jax import legal
from infer_jax.specs import UNBOUNDED, Architecture, Hardware, Hierarchy, layout_label

NAMED = 128  # chips up to which layouts that run are named in place of others
MAX_STAGES = 16  # pipeline stages that are tried
TRAY = 4  # GPUs of a machine of an NVL72 rack: 18 compute trays of 4 (nvidia.com, GB200 NVL72)
MACHINE = 8  # GPUs of a machine where the profile does not say
TRAINIUM = 16  # chips of a trn2.48xlarge (aws.amazon.com/ec2/instance-types/trn2)
# TPU slices are powers of two, as of v5e: 1, 4, 8 ... 256 chips (cloud.google.com/tpu/docs/v5e);
# every slice that is tried divides this one
SLICE = 1024
MAX_GPUS = 1e6  # GPUs of a machine that a profile may give
LARGEST = 64.0  # chips of one instance that are tried where no total is given
DEGREE = re.compile(r"(tp|dp|ep|pp|chunk|drafts) *(\d[\d.e+]*)(?= |$)", re.IGNORECASE)
Column = Float[np.ndarray, " rows"]


class Layout(NamedTuple):
    """Degrees of one instance, its chunk and drafts; see ``estimators.serving.Deployment``."""

    tp: float
    attention_dp: float
    ep: float
    pp: float
    chunk: float = UNBOUNDED
    drafts: float = 0.0

    @property
    def chips(self) -> float:
        """Chips of the instance."""
        return self.tp * self.attention_dp * self.pp

    @property
    def plain(self) -> "Layout":
        """The degrees alone."""
        return self._replace(**self._field_defaults)

    @property
    def unusual(self) -> int:
        """Rank among layouts with equal results, 0 for the one that engines run by default.

        vLLM slices every expert over all GPUs of a stage, or with --enable-expert-parallel places
        whole ones on them (docs.vllm.ai, expert parallel deployment, v0.19); it has nothing
        in between. Whole experts are usual with several attention groups, sliced ones with one.
        """
        placed, sliced = self.ep == self.tp * self.attention_dp, self.ep == 1
        first, second = (placed, sliced) if self.attention_dp > 1 else (sliced, placed)
        return 0 if first else 1 if second else 2

    def __str__(self) -> str:
        sizes = {"tp": self.tp, "dp": self.attention_dp, "ep": self.ep, "pp": self.pp}
        return layout_label(sizes, chunk=self.chunk, drafts=self.drafts)

    @classmethod
    def of(cls, words: str) -> "Layout":
        """The layout that is printed so, in any case and order; what is not said is 1.

        Raises:
            ValueError: other words, or a degree that is said twice or is no whole number.

        >>> str(Layout.of("ep8 tp4 dp2")), Layout.of("TP8") == Layout(8.0, 1.0, 1.0, 1.0)
        ('TP4 DP2 EP8', True)
        """
        pairs = [(name.lower(), float(size)) for name, size in DEGREE.findall(words)]
        degrees = dict(pairs)
        wrong = len(degrees) != len(pairs) or any(size % 1 or size < 1 for _, size in pairs)
        if wrong or not pairs or DEGREE.sub("", words).strip():
            raise ValueError(words)
        groups = degrees.pop("dp", 1.0)
        return cls(**{"tp": 1.0, "attention_dp": groups, "ep": 1.0, "pp": 1.0, **degrees})

    @property
    def degrees(self) -> dict[str, float]:
        """The degrees, and what else is not at its default."""
        usual = self._field_defaults
        return {n: x for n, x in self._asdict().items() if x != usual.get(n)}


def layouts(arch: Architecture, chips: int, size: int = 1) -> list[Layout]:
    """Every layout of one instance on at most ``chips`` chips that an engine runs.

    ``infer_jax.legal`` decides which. Left out are pipeline stages that divide the layers unevenly,
    more than 16 stages, and instances that neither divide a machine of ``size`` chips nor consist
    of whole machines (1: none are left out).
    """
    divided = legal.divisions(arch)
    mixture = any(layer.mixture for layer in divided)
    queries = np.gcd.reduce([int(query) for row in divided for query, _ in row.heads] or [1])
    layers = int(sum(float(layer.count) for layer in divided))
    candidates: list[tuple[int, int, int, int]] = []
    for tp in _divisors(int(queries), chips):
        for groups in range(1, chips // tp + 1) if mixture else (1,):
            ranks = tp * groups
            longest = min(chips // ranks, layers, MAX_STAGES)
            # the longest stage has at most a tenth more layers than the mean one
            even = (pp for pp in range(1, longest + 1) if -(-layers // pp) * pp <= 1.1 * layers)
            stages = [*even]
            for ep in _divisors(ranks, ranks) if mixture else (1,):
                candidates += [(tp, groups, ep, pp) for pp in stages]
    columns = Layout(*np.asarray(candidates, np.float64).reshape(-1, 4).T)  # pyright: ignore[reportArgumentType]
    fills = (size % columns.chips == 0) | (columns.chips % size == 0)  # as ``machine_rule`` says
    fits = legal.holds(arch, columns) & fills
    runs = np.broadcast_to(fits, len(candidates))
    return [Layout(*row) for row, fit in zip(candidates, runs, strict=True) if fit]


def ideal_layouts(arch: Architecture, total: float) -> Float[np.ndarray, "layouts 3"]:
    """TP, PP and EP of the layouts on at most ``total`` chips that ideal servers are tried with.

    EP attention groups of TP ranks share the experts, as in the plan of ``estimate``.
    """
    able = layouts(arch, int(total))
    return np.array([(x.tp, x.pp, x.ep) for x in able if x.ep == x.attention_dp])


def nearest_layouts(arch: Architecture, layout: Layout) -> list[Layout]:
    """At most three layouts that engines run, of as many chips or else of the nearest number.

    None where there are more than ``NAMED`` chips.
    """
    if layout.chips > NAMED:
        return []
    able = [x for x in layouts(arch, int(2 * layout.chips)) if x.pp == layout.pp and x.unusual < 2]
    chips = min((x.chips for x in able), key=lambda n: (abs(n - layout.chips), -n), default=0.0)
    same = [x for x in able if x.chips == chips]
    return sorted(same, key=lambda x: (abs(x.tp - layout.tp), x.unusual))[:3]


def _divisors(number: int, limit: int) -> list[int]:
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def largest(hardware: Hardware, total: float) -> float:
    """Chips of the largest instance that is tried: all of them, or a few fast domains."""
    if total < float("inf"):
        return min(total, 4.0 * LARGEST)
    network = hardware.network
    return max(LARGEST, float(network.domain)) if isinstance(network, Hierarchy) else LARGEST


def machine(hardware: Hardware, title: str) -> tuple[int, str]:
    """GPUs of one machine, and their vendor; "" if the profile's title does not name it.

    For a TPU ``SLICE``, whose divisors are the powers of two.
    """
    network = hardware.network
    if title.startswith("AWS"):
        return TRAINIUM, "other"
    if not isinstance(network, Hierarchy):
        return SLICE, "other"
    if title.startswith("Groq"):
        return MACHINE, "other"
    maker = next((name for name in ("NVIDIA", "AMD") if title.startswith(name)), "")
    return (TRAY if "NVL72" in title else int(min(max(network.domain, 1.0), MAX_GPUS))), maker


def machine_rule(size: int) -> str:
    """Which instances ``layouts`` keeps on machines of ``size``, in words."""
    if size == SLICE:
        return "an instance's chips are a power of two, as slices are"
    return f"an instance's GPUs divide a machine of {size}, or are whole machines"
