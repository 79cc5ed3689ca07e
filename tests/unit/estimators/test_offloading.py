"""The offloading models where they can be worked out by hand, and at corners."""

import numpy as np
import pytest

from infer_jax.catalog import load_model, load_system
from infer_jax.errors import InputError
from infer_jax.estimators import Offload, Offloading, make
from infer_jax.estimators.offloading.coefficients import Attained
from infer_jax.estimators.offloading.search import (
    check_system,
    round_policy,
    search,
    whole_tensor_shares,
)
from infer_jax.specs import Workload
from tests.unit.estimators.compiled import estimate

GIB = 2.0**30
SYSTEM = load_system("t4_host").hardware


def opt(name):
    return load_model(name).architecture


WORK = Workload.of(isl=512, osl=32)
MIXED = {"weights": (0.2, 0.8, 0), "cache": (0, 1, 0), "hidden": (0, 1, 0)}


def test_the_released_unit_case():
    """OPT-30B, 512 + 32 tokens, 48 x 3: the released model's own example, 8 printed digits."""
    plan = Offload.placed(**MIXED, gpu_batch=48, batches=3)
    life = estimate(Offloading.released(solve=False), opt("opt-30b"), SYSTEM, WORK, plan)
    per_layer = {k: float(v) / 48 for k, v in life.prefill.terms.items()}
    decode = {k: float(v) / 48 for k, v in life.decode.terms.items()}
    np.testing.assert_allclose(
        [per_layer["to_gpu"], per_layer["to_cpu"], per_layer["compute"]],
        [0.14764352, 2.2378305, 4.3889669], rtol=5e-8,
    )  # fmt: skip
    assert per_layer["read"] == per_layer["written"] == 0.0
    np.testing.assert_allclose(
        [decode["to_gpu"], decode["to_cpu"], decode["compute"] + decode["attend"]],
        [0.071425338, 0.00039888121, 0.22097632], rtol=5e-8,
    )  # fmt: skip
    np.testing.assert_allclose(float(life.time), 645.76408, rtol=5e-8)
    np.testing.assert_allclose(float(life.throughput), 7.1357, rtol=1e-5)
    peaks = [
        float(phase.limits[f"{tier} memory"].need) / GIB
        for tier in ("GPU", "CPU") for phase in (life.prefill, life.decode)
    ]  # fmt: skip
    np.testing.assert_allclose(peaks, [18.769, 12.870, 140.831, 144.512], atol=5e-4)


def test_exhaustive_search_beats_stopping_at_the_first_drop():
    """The grid's best is at least that of every number of batches tried one by one."""
    grid = search(Offloading.released(), opt("opt-30b"), SYSTEM, WORK, gpu_batches=(16, 48))
    best = grid.best()
    assert best is not None
    assert grid.throughput[best] == grid.throughput[grid.feasible].max()
    front = grid.frontier()
    assert np.all(np.diff(grid.time[front]) > 0) and np.all(np.diff(grid.throughput[front]) > 0)
    limit = float(grid.time[front[0]] * 1.001)
    quick = grid.best(limit)
    assert quick is not None and grid.time[quick] <= limit and grid.best(1e-9) is None


def test_infeasible_names_the_binding_memory():
    tiny = SYSTEM.replace(host=SYSTEM.host.with_(memory=1e9, disk=0, disk_read=0, disk_write=0))
    grid = search(Offloading.improved(), opt("opt-175b"), tiny, WORK, gpu_batches=(1,))
    assert not grid.feasible.any()
    assert "GPU and CPU and disk memory" in grid.why
    # all on the GPU fits but for the GPU's own buffers
    small = SYSTEM.replace(chip=SYSTEM.chip.with_(memory=1e8))
    grid = search(Offloading.improved(), opt("opt-6.7b"), small, WORK, gpu_batches=(1,))
    assert grid.why.startswith("GPU memory")


def test_a_system_without_host_keeps_all_on_the_gpu():
    arch, hardware = load_model("llama-3.1-8b").architecture, load_system("h100_sxm").hardware
    life = estimate(Offloading.improved(), arch, hardware, WORK, Offload.of(gpu_batch=8))
    assert bool(life.feasible)
    assert [float(life.decode.layout[f"{x}_gpu"]) for x in ("weights", "cache")] == [1.0, 1.0]


def test_hidden_states_on_disk_are_refused_by_the_released_model():
    plan = Offload.placed(weights=(0.2, 0.8, 0), cache=(0, 1, 0), hidden=(0, 0.5, 0.5), gpu_batch=4)
    life = estimate(Offloading.released(solve=False), opt("opt-30b"), SYSTEM, WORK, plan)
    assert not bool(life.feasible)
    assert float(life.decode.limits["hidden states on disk"].need) == 0.5
    paper = estimate(Offloading.paper(solve=False), opt("opt-30b"), SYSTEM, WORK, plan)
    assert bool(paper.feasible)


def test_bad_fractions_and_rates_are_one_sentence():
    with pytest.raises(InputError, match="sum to 1"):
        Offload.placed(weights=(0.2, 0.7, 0.0), cache=(0, 1, 0), hidden=(0, 1, 0))
    with pytest.raises(InputError, match=r"weights_gpu \+ weights_cpu is 1\.3"):
        Offload.of(weights_gpu=0.5, weights_cpu=0.8)
    with pytest.raises(InputError, match="gpu_batch is 0"):
        Offload.of(gpu_batch=0)
    broken = SYSTEM.replace(host=SYSTEM.host.with_(link_bandwidth=0))
    with pytest.raises(InputError, match=r"host\.link_bandwidth is 0"):
        check_system(broken, "t4.toml")
    with pytest.raises(InputError, match="speed"):
        make("offloading", {"offloading": {"speed": 1.0}})


def test_choices_of_the_plan_do_what_they_say():
    model, arch = Offloading.as_planned(), opt("opt-30b")
    base = Offload.placed(**MIXED, gpu_batch=32, batches=4)

    def life(**changes):
        return estimate(model, arch, SYSTEM, WORK, base.with_(**changes))

    usual = life()
    assert float(life(overlap="no").time) > float(usual.time)
    # row-by-row loads the weights for every GPU batch: as many blocks of one batch
    single = life(batches=1)
    np.testing.assert_allclose(
        float(life(schedule="row-by-row").time), 4 * float(single.time), rtol=1e-12
    )
    # the cache crosses, compressed to 4.5 of 16 bits
    crossing = life(cpu_attention="no").decode.terms["to_gpu"] - usual.decode.terms["to_gpu"]
    squeezed = life(cpu_attention="no", compress_cache="yes").decode.terms["to_gpu"]
    np.testing.assert_allclose(
        float(squeezed - usual.decode.terms["to_gpu"]) / float(crossing), 4.5 / 16, rtol=1e-9
    )
    # a tenth of the values: (1 + 0.1) / 2 of the cache is read
    sparse = life(values_read=0.1).decode.terms["attend"]
    np.testing.assert_allclose(float(sparse / usual.decode.terms["attend"]), 0.55, rtol=1e-12)
    # weights of 4.5 bits
    packed = life(compress_weights="yes").decode.limits["CPU memory"]
    assert float(packed.need) < float(usual.decode.limits["CPU memory"].need)
    # diagonal: cache of the mean token, (2 s + n)(n - 1) / (2 n) in place of s + n
    diagonal = life(schedule="diagonal")
    saved = usual.decode.limits["CPU memory"].need - diagonal.decode.limits["CPU memory"].need
    cache = 4.0 * 7168 * 128 * 48
    np.testing.assert_allclose(float(saved), cache * (544 - (2 * 512 + 32) * 31 / 64), rtol=1e-9)


def test_the_cpu_attends_in_32_bits():
    """Cache on the CPU is read in 16 bits to be converted, then in 32; from disk in 32 alone."""
    model, arch = Offloading.as_planned(), opt("opt-30b")
    work = {"weights": (0, 1, 0), "hidden": (0, 1, 0), "gpu_batch": 32, "batches": 4}
    at = {
        tier: estimate(model, arch, SYSTEM, WORK, Offload.placed(cache=cache, **work)).decode.terms
        for tier, cache in (("cpu", (0, 1, 0)), ("disk", (0, 0, 1)))
    }
    np.testing.assert_allclose(float(at["cpu"]["attend"]) / float(at["disk"]["attend"]), 1.5)
    # 128 samples, 528 tokens of 2 x 2 x 7168 bytes in 48 layers, read once and then twice as wide
    read = 3 * 128 * 528 * 4 * 7168 * 48
    assert isinstance(model.rates, Attained)
    bandwidth = float(model.rates.host_memory * SYSTEM.host.memory_bandwidth)
    np.testing.assert_allclose(float(at["cpu"]["attend"]), read / bandwidth, rtol=1e-9)


def test_a_pipeline_of_stages_composes():
    """m blocks in flight: (2 m - 1) T_pre L / m + (n - 1) T_gen L for m b samples."""
    model, arch = Offloading.released(solve=False), opt("opt-30b")
    plan = Offload.placed(**MIXED, gpu_batch=48, batches=2)
    one = estimate(model, arch, SYSTEM, WORK, plan)
    four = estimate(model, arch, SYSTEM, WORK, plan.with_(pp=4))
    np.testing.assert_allclose(float(four.ttft), 7 / 4 * float(one.ttft), rtol=1e-12)
    np.testing.assert_allclose(float(four.tpot), float(one.tpot), rtol=1e-12)
    assert float(four.samples) == 4 * 96
    np.testing.assert_allclose(
        float(four.throughput * four.chips), 4 * 96 * 32 / float(four.time), rtol=1e-12
    )


def test_weights_settle_as_whole_tensors():
    """Attention: four equal matrices, middles at 12.5 to 87.5 %; feedforward: two, 25 and 75 %.

    20 % on the GPU takes one of attention's four (1/12 of a layer), 30 % one of the two of the
    feedforward as well (4/12).
    """
    for gpu, cpu, shares in ((100, 0, (1, 0, 0)), (0, 100, (0, 1, 0)), (0, 50, (0, 0.5, 0.5)),
                             (20, 80, (1 / 12, 11 / 12, 0)),
                             (30, 70, (5 / 12, 7 / 12, 0))):  # fmt: skip
        np.testing.assert_allclose(
            whole_tensor_shares(opt("opt-30b"), gpu, cpu), shares, atol=1e-12
        )


def test_rounded_flags_are_feasible_and_cost_little():
    model, arch = Offloading.improved(), opt("opt-30b")
    plan = Offload.of(gpu_batch=24, batches=4)
    life = estimate(model, arch, SYSTEM, WORK, plan)
    layout = life.decode.layout
    names = [f"{k}_{t}" for k in ("weights", "cache", "hidden") for t in ("gpu", "cpu")]
    placed = plan.replace(**{name: layout[name] for name in names})
    flags = round_policy(model, arch, SYSTEM, WORK, placed, float(life.throughput))
    assert flags is not None
    assert -1e-9 <= flags.loss < 0.3
    assert flags.text.endswith(f"--gpu-batch-size 24 --num-gpu-batches {flags.batches}")
    wg, wc, cg, cc, hg, hc = flags.percent
    assert max(wg + wc, cg + cc, hg + hc) <= 100
