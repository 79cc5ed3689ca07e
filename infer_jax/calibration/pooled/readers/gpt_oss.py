"""gpt-oss-120b on one H200 under vLLM 0.22: sweeps of requests in flight, repeated, with power.

Columns as in the tables of GloriaXimingLu/inferencex-profiling (@237385b), tab-separated. A label
says how many are in flight (``c16``); mean lengths follow from the rates. The rows of
``spec_accept_rate`` drafted 7 tokens with EAGLE3, whose head is a layer: its acceptance is the
one at which the mean of 7 positions is what the row says. The power meter ran longer than the
server was busy: ``gpu_util_mean`` is the share of its time in which a kernel ran.
"""

import re

from infer_jax.calibration.pooled.rows import (
    Cells,
    PooledRow,
    ServedModel,
    UnusableRowError,
    gpt_oss_formats,
    lookup,
    number,
    optional_number,
    text,
)
from infer_jax.estimators.serving import Deployment, ServingWorkload

COLUMNS = ("label", "completed", "mean_tpot_ms", "mean_ttft_ms", "mean_e2e_ms", "power_mean_w")
OWN = {"model": "gpt-oss-120b", "hardware": "h200"}  # of all rows, where they say any
DRAFTS = 7.0
WAVES = 5.0  # completed over in flight below which a run is a start and an end


def acceptance(rate: float, drafts: float = DRAFTS) -> float:
    """The chance a of each draft at which ``rate`` of all are accepted: a + a^2 + ... = rate d."""
    from scipy.optimize import brentq  # of jax's own requirements

    def excess(a: float) -> float:
        return sum(a ** (j + 1) for j in range(int(drafts))) - rate * drafts

    return float(brentq(excess, 0.0, 1.0, xtol=1e-15))  # pyright: ignore


def row(cells: Cells) -> PooledRow:
    """A run, of the cells of its line."""
    label = text(cells, "label")
    match = re.search(r"(?:^|_)c(\d+)(?:_|$)", label)
    if match is None or not float(match[1]):
        raise UnusableRowError("label does not tell the requests in flight")
    for column, own in OWN.items():
        lookup({"": "", own: own}, cells, column)
    load = float(match[1])
    completed = number(cells, "completed")
    if completed < WAVES * load:
        raise UnusableRowError(f"fewer than {WAVES:g} requests for each in flight")
    rate = number(cells, "req_tput")
    osl = number(cells, "out_tput") / rate
    isl = (number(cells, "tot_tput") - number(cells, "out_tput")) / rate
    if isl <= 0.0:
        raise UnusableRowError("tot_tput is not above out_tput")
    accepted = optional_number(cells, "spec_accept_rate")
    if accepted is not None and accepted >= 1.0:
        raise UnusableRowError("spec_accept_rate is not below 1")
    drafting = accepted is not None
    first = number(cells, "mean_ttft_ms") / 1e3
    return PooledRow(
        id=label,
        dataset="gpt-oss h200 drafts" if drafting else "gpt-oss h200",
        served=ServedModel("gpt-oss-120b", gpt_oss_formats(16.0)),
        system="h200_sxm",
        engine="vllm",
        workload=ServingWorkload.of(isl=isl, osl=osl, batch=load, waves=completed / load),
        plan=Deployment.of(tp=1.0, drafts=DRAFTS if drafting else 0.0),
        measured={
            "tpot": number(cells, "mean_tpot_ms") / 1e3,
            "ttft": first,
            "ttft_mean": first,
            "e2e": number(cells, "mean_e2e_ms") / 1e3,
            "throughput": number(cells, "out_tput"),
            "power": number(cells, "power_mean_w"),
        },
        group=f"gpt-oss-120b h200 vllm {'eagle3' if drafting else 'none'}",
        acceptance=None if accepted is None else acceptance(accepted),
        date="2026-06",
        busy_share=min((optional_number(cells, "gpu_util_mean") or 100.0) / 100.0, 1.0),
    )
