"""Mixtures: sums of their cases, pools, [[case]] tables, and designs for all cases at once."""

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog import load_model
from infer_jax.design.toml import spec_of
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator, make
from infer_jax.silicon.chips import load_accelerator
from infer_jax.silicon.mixture import Case, Mixture, mixture_of
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps.toml import read_space

pytestmark = pytest.mark.usefixtures("x64")
IDEAL = make("economics.planned")


def arch(name="llama-3.1-8b"):
    return load_model(name).architecture


def work(**changes):
    return Workload.of(**{"isl": 1024, "osl": 128, "batch": 8, **changes})


def test_a_mixture_is_the_mean_of_its_cases_by_tokens():
    small, large = work(), work(isl=4096, osl=512, batch=4)
    chip = load_accelerator("h100_sxm").hardware()
    one, two = (IDEAL.estimate(arch(), chip, x, Plan.of()) for x in (small, large))
    case = Case.of(workload=large, prompts=3, outputs=2, tpot=1e-3)
    mixture = Mixture.of(target=IDEAL, cases=(case,))
    found = mixture.estimate(arch(), chip, small, Plan.of())
    outs, ins = np.array([128, 2 * 512]), np.array([1024, 3 * 4096])
    costs = np.array([float(one.cost), float(two.cost)])
    prompts = np.array([float(one.input_cost), float(two.input_cost)])
    assert float(found.cost) == pytest.approx(outs @ costs / outs.sum(), rel=1e-12)
    assert float(found.input_cost) == pytest.approx(ins @ prompts / ins.sum(), rel=1e-12)
    total = (outs @ costs + ins @ prompts) / (128 + 3 * 512)
    assert float(found.total) == pytest.approx(total, rel=1e-12)
    assert float(found.tpot) == max(float(one.tpot), float(two.tpot))
    seconds = 128 / float(one.throughput) + 3 * 512 / float(two.throughput)
    assert float(found.throughput) == pytest.approx((128 + 3 * 512) / seconds, rel=1e-12)
    assert not bool(found.feasible)  # TPOT of the second case
    assert float(found.decode.limits["tpot of case 2"].need) == float(two.tpot)
    parts = [
        mixture.replace(only=i).estimate(arch(), chip, small, Plan.of()).total for i in range(2)
    ]
    assert float(sum(parts)) == pytest.approx(total, rel=1e-12)
    alone = Mixture.of(target=IDEAL, prompts=0.0).estimate(arch(), chip, small, Plan.of())
    assert float(alone.input_cost) == 0.0
    assert float(alone.total) == pytest.approx(float(one.cost), rel=1e-12)


def test_two_pools_add_up_to_one_chip_that_does_both():
    """Of an ideal machine at one request a pass, whose prompts and outputs do not disturb."""
    chip, one = load_accelerator("h100_sxm").hardware(), work(batch=1)
    case = Case.of(workload=work(isl=300, batch=1), prompts=2, outputs=2, ttft=1e-9, tpot=1.0)
    pools = {
        pool: Mixture.of(target=IDEAL, cases=(case,), pool=pool).estimate(
            arch(), chip, one, Plan.of()
        )
        for pool in ("", "prefill", "decode")
    }
    both = float(pools["prefill"].total) + float(pools["decode"].total)
    assert float(pools[""].total) == pytest.approx(both, rel=1e-12)
    # the limit of TTFT is one of prefill alone
    assert [bool(x.feasible) for x in pools.values()] == [False, False, True]
    assert not pools["decode"].prefill.limits
    larger = Mixture.of(target=IDEAL, pool="prefill")
    batched = larger.estimate(arch(), chip, work(batch=4), Plan.of())
    assert float(batched.ttft) > 3.9 * float(larger.estimate(arch(), chip, one, Plan.of()).ttft)


FILE = {
    "estimator": "economics.planned",
    "arch": {"model": "llama-3.1-8b"},
    "chip": {"silicon": "h100_sxm", "stacks": {"integers": [2, 5, 1]}},
    "workload": {"osl": 256},
    "case": [
        {"isl": 2048, "requests": 3},
        {"model": "qwen3-8b", "quant": "fp8", "isl": 512, "tpot": 0.004, "tp": {"values": [1, 2]}},
        {"isl": 8192, "prompts": 0.5},
    ],
}
DESIGN = {
    **FILE,
    "case": FILE["case"][:2],
    "free": {"batch": [1, 32]},
    "objective": {"best": "total"},
    "limits": {"tpot": 0.008},
    "start": {"batch": 2},
    "search": {"restarts": 8, "steps": 40},
}


def test_cases_of_a_file():
    estimator, space, _ = read_space("file", FILE)
    assert isinstance(estimator, Estimator)
    mixture = mixture_of(estimator)
    assert mixture is not None
    assert float(mixture.prompts) == float(mixture.outputs) == 3.0
    two, three = mixture.cases
    assert three.arch is None and float(three.workload.isl) == 8192
    assert (float(three.prompts), float(three.outputs)) == (0.5, 1.0)
    assert two.arch is not None and float(two.tpot) == 0.004
    assert float(two.arch.width) == float(arch("qwen3-8b").width)
    assert all(float(x.osl) == 256 for x in (space.workload, two.workload, three.workload))
    assert space.axes["estimator.target.cases.0.plan.tp"].steps == (1, 2)
    spec = spec_of("file", {**DESIGN, "case": FILE["case"]})
    batches = [path for path in spec.space.axes if path.endswith("workload.batch")]
    assert len(batches) == 3 and {spec.start[path] for path in batches} == {2.0}


def test_the_same_file_is_of_either_pool():
    for pool, term in (("prefill", "ttft"), ("decode", "tpot")):
        limits = {"ttft": 1.0, "tpot": 0.01}
        spec = spec_of("file", {**DESIGN, "pool": pool, "limits": limits})
        assert dict(spec.keeps[0].under) == {term: limits[term]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"case": [{"isl": 3, "olsl": 2}]}, "case.1.olsl.*model, quant"),
        ({"case": [{"isl": 3}, {"requests": -1}]}, "case.2.requests.*at least 0"),
        ({"case": [{"isl": 3}, {"model": "lama"}]}, "lama"),
        ({"case": [{"isl": "many"}]}, "case.1.isl.*a table such as"),
        ({"case": [{"isl": 3, "batch": [8, 2]}]}, "case.1.batch.*low, high"),
        ({"case": [7]}, "case.1"),
        ({"arch": {}, "case": [{"isl": 3}]}, "case.1.model"),
        ({"pool": "both"}, "pool.*prefill or decode"),
    ],
)
def test_cases_that_are_wrong_are_refused_in_one_sentence(changes, words):
    with pytest.raises(InputError, match=words):
        spec_of("file", {**DESIGN, **changes})


@pytest.mark.slow
def test_a_design_for_a_mixture_is_the_best_of_its_lattice():
    found = ij.codesign(spec=DESIGN)
    batch = {"values": list(spec_of("file", DESIGN).space.axes["workload.batch"].steps)}
    cases = [{**case, "batch": batch} for case in DESIGN["case"]]
    keep = {"best": "total", "under": {"tpot": 0.008}}
    best = ij.sweep({**FILE, "case": cases, "keep": keep}).rows()[0]
    assert found.designs[0].design.objective == pytest.approx(best["total"], rel=1e-5)
    assert "case 2: plan.tp" in str(found)
