"""The kernel model: look-up rules, curves, tables refused by line; kernels timed here."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.catalog import load_system
from infer_jax.catalog.kernel_tables import load_kernel_tables
from infer_jax.errors import InputError
from infer_jax.estimators.kernels import Curves, Kernels, KernelsPlan, Tables
from infer_jax.estimators.kernels.efficiency import (
    HEADLESS,
    MEASURED,
    NO_DTYPE,
    NO_ROW,
    NO_TABLE,
    ZERO,
    Gemm,
    Routed,
)
from infer_jax.kernel_timing import Timed, families, fitted, kernels, profile
from infer_jax.kernel_timing.families import BF16, FP8
from infer_jax.kernel_timing.kernels import seconds
from infer_jax.physics import efficiency as eff
from infer_jax.specs import (
    Architecture,
    Block,
    Compressed,
    Dense,
    Experts,
    ForwardPass,
    GroupedQuery,
    Latent,
    Linear,
    Workload,
)
from tests.unit.physics.derivatives import agree_at, numbers

HARDWARE = load_system("h800_sxm").hardware
CHIP = HARDWARE.chip
GEMM = "m,k,n,latency_us,mfu\n16,1024,512,5.0,0.1234\n64,1024,512,6.0,0.4\n16,2048,512,7.0,0.25\n"
DECODE = "dtype,kv_dtype,batch_size,kv_len,latency_us,mfu\n"
DECODE += "bf16,bf16,1,1024,9.0,0.1\nbf16,bf16,64,4096,99.0,0.3\nbf16,bf16,65,4095,98.0,0.31\n"
PREFILL = "dtype,seq_len,latency_us,mfu\nbf16,1024,9.0,0.4\nbf16,4096,99.0,0.6\nbf16,2048,9,0.5\n"
GROUPED = (
    "num_experts,num_gpus,num_local_experts,topk,hidden_size,intermediate_size,{},"
    "tokens_per_expert,up_proj_us,up_mfu,down_proj_us,down_mfu\n"
    "64,4,16,8,1024,512,{},8,10.0,0.2,5.0,0.25\n"
)
FILES = {
    "gemm/h800/data.csv": GEMM,
    "mha/decode/h800/32-8-128.csv": DECODE,
    "mha/prefill/h800/32-8-128.csv": PREFILL,
    "grouped_gemm/decode/h800/data.csv": GROUPED.format("batch_size_per_gpu", 64),
    "grouped_gemm/prefill/h800/data.csv": GROUPED.format("seq_len_per_gpu", 4096),
    "gdn/decode/h800/4-16-128-32-128.csv": "batchsize,a,b\n8,30.0,10.0\n64,100.0,60.0\n",
}
QUERY = GroupedQuery.of(query_heads=32, kv_heads=8, head_width=128, value_width=128)
LATENT = Latent.of(
    query_heads=128, nope_width=128, rope_width=64, value_width=128, kv_rank=512, query_rank=1536
)
LINEAR = Linear.of(key_heads=16, key_width=128, value_heads=32, value_width=128, conv_width=4)
EXPERTS = Experts.of(
    experts=64, active=8, width=512, inward=2, shared=Dense.of(width=512, inward=2, weights=FP8),
    weights=FP8,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def tables(folder):
    return Tables.load(folder, "h800", 0.35, 0.9)


def test_a_product_is_looked_up(tables):
    for shape, mfu, lack in (
        ((16, 1024, 512), 0.123, MEASURED),  # rounded to three decimals, half to even
        ((63, 1024, 512), 0.123, MEASURED),  # the last row with m' <= m
        ((64, 1000, 500), 0.4, MEASURED),  # the nearest larger shape
        ((64, 1025, 512), 0.25, MEASURED),  # k' >= k
        ((15, 1024, 512), 0.35, NO_ROW),  # below the smallest m'
        ((16, 1024, 513), 0.35, NO_ROW),  # no n' >= n
        ((16, 1, 1), 0.123, MEASURED),
    ):
        result = tables.product(CHIP, Gemm(*numbers(*shape)), FP8)
        assert (float(result.mfu), int(result.lack)) == (pytest.approx(mfu, rel=1e-6), lack), shape


def test_a_product_far_away_is_another(folder):
    far = "16,40000,40000,5.0,0.2\n"
    (folder / "gemm" / "h800" / "data.csv").write_text(GEMM.splitlines()[0] + "\n" + far)
    tables = Tables.load(folder, "h800", 0.35, 0.9)
    result = tables.product(CHIP, Gemm(*numbers(16, 1024, 512)), FP8)
    assert int(result.lack) == NO_ROW  # its squared distance is above 1e9


def test_decode_takes_the_nearest_row(tables):
    for sequences, context, mfu in ((1, 1024, 0.1), (60, 4000, 0.3), (66, 4095, 0.31)):
        result = tables.decode(CHIP, QUERY, *numbers(sequences, context), BF16)
        assert float(result.mfu) == pytest.approx(mfu, rel=1e-6)
    assert int(tables.decode(CHIP, QUERY, *numbers(1, 1024), FP8).lack) == NO_DTYPE
    other = QUERY.replace(query_heads=jnp.asarray(16.0))
    assert int(tables.decode(CHIP, other, *numbers(1, 1024), FP8).lack) == NO_TABLE


def test_prefill_takes_the_floor_and_without_a_table_is_nearly_ideal(tables):
    """The search stops at the first longer row: 2048, which comes after 4096, is not reached."""
    for layer, length, mfu, lack in (
        (QUERY, 1023, 0.35, NO_ROW), (QUERY, 1024, 0.4, MEASURED), (QUERY, 3000, 0.4, MEASURED),
        (QUERY, 4096, 0.5, MEASURED), (LATENT, 4096, 0.9, NO_TABLE),
    ):  # fmt: skip
        result = tables.prefill(CHIP, layer, numbers(length)[0])
        assert (float(result.mfu), int(result.lack)) == (pytest.approx(mfu, rel=1e-6), lack), length


def test_experts_are_looked_up_exactly(tables):
    def of(**changes):
        given = {"width": 1024.0, "tokens": 99.0, "gpus": 4.0, "spread": 4.0} | changes
        values = {name: jnp.asarray(x) for name, x in given.items()}
        return tables.routed(CHIP, Routed(experts=EXPERTS, **values), "decode")

    assert float(of().mfu) == pytest.approx(0.25)  # the better of the two products
    assert int(of(gpus=8.0).lack) == NO_ROW
    assert int(of(width=2048.0).lack) == NO_ROW


def test_linear_attention_is_in_proportion_to_the_nearest_row(tables):
    seconds, rating = tables.linear(CHIP, LINEAR, numbers(16)[0], "decode", numbers(1e6)[0])
    assert (float(seconds), int(rating.lack)) == (pytest.approx(80e-6), MEASURED)
    _, rating = tables.linear(CHIP, LINEAR, numbers(16)[0], "prefill", numbers(1e6)[0])
    assert int(rating.lack) == NO_DTYPE  # the tool crashes here


def test_a_row_of_zero_is_not_divided_by(folder):
    path = folder / "mha" / "decode" / "h800" / "32-8-128.csv"
    path.write_text(DECODE.replace(",0.1\n", ",0.0004\n"))
    tables = Tables.load(folder, "h800", 0.35, 0.9)
    result = tables.decode(CHIP, QUERY, *numbers(1, 1024), cache=BF16)
    assert (float(result.mfu), int(result.lack)) == (pytest.approx(0.35), ZERO)


def test_attention_that_no_table_is_named_after_is_refused(tables):
    pooled = Compressed.of(
        query_heads=64, head_width=512, query_rank=1024, output_groups=8, output_rank=1024,
        window=128, ratio=4,
    )  # fmt: skip
    with pytest.raises(InputError, match="kernel tables: attention is 'Compressed'"):
        tables.decode(CHIP, pooled, *numbers(1, 1024), cache=BF16)


def test_a_table_without_a_header_is_refused_when_it_is_needed(folder):
    path = folder / "mha" / "decode" / "h800" / "32-8-128.csv"
    path.write_text("".join(DECODE.splitlines(keepends=True)[1:]))
    tables = Tables.load(folder, "h800", 0.35, 0.9)
    result = tables.decode(CHIP, QUERY, *numbers(1, 1024), cache=BF16)
    assert int(result.lack) == HEADLESS
    error = load_kernel_tables(folder, "h800").headless["mha.decode", (32.0, 8.0, 128.0)]
    assert all(word in str(error) for word in ("32-8-128.csv", "line 1", "header"))


GEMM_FILE, MHA_FILE = "gemm/h800/data.csv", "mha/prefill/h800/32-8-128.csv"


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (GEMM_FILE, GEMM.replace("6.0", "six"), ("line 3", "latency_us", "six")),
        (GEMM_FILE, GEMM.replace("0.4\n", "0.0001\n"), ("line 3", "mfu", "0.0001")),
        (GEMM_FILE, GEMM.replace("64,1024", "-64,1024"), ("line 3", "m", "-64")),
        (GEMM_FILE, GEMM.replace(",6.0", ""), ("line 3", "number of cells", "4")),
        (GEMM_FILE, GEMM.replace("m,k,n", "m,k,q"), ("line 1", "header", "without n")),
        (GEMM_FILE, "", ("line 1", "empty")),
        (MHA_FILE, PREFILL.replace("99.0,0.6", "99.0,?"), ("line 3", "mfu", "?")),
        ("mha/decode/h800/32-8-128.csv", DECODE.replace("bf16,1,", "int4,1,"), ("line 2", "int4")),
        ("mha/decode/h800/thirty-two.csv", DECODE, ("file name", "thirty-two")),
        ("gdn/decode/h800/4-16-128-32-128.csv", "batchsize,a\n8,x\n", ("line 2", "a", "x")),
    ],
)  # fmt: skip
def test_a_damaged_table_is_named_with_its_line(folder, file, text, words):
    path = folder / file
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        Kernels.from_tables(folder, "h800", 0.35)
    assert all(word in str(caught.value) for word in (path.name, *words)), str(caught.value)


def test_a_folder_without_tables(tmp_path):
    with pytest.raises(InputError, match="no kernel tables"):
        Kernels.from_tables(tmp_path, "h800", 0.35)
    with pytest.raises(InputError, match="no such folder"):
        Kernels.from_tables(tmp_path / "none", "h800", 0.35)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"gemm_speed": 1.0}, r"gemm: speed"), ({"gemm_compute": 1.5}, r"gemm: compute"),
     ({"speed_of_gemm": 1.0}, "speed_of_gemm"), ({}, "missing")],
)  # fmt: skip
def test_coefficients_are_checked(given, said):
    with pytest.raises(InputError, match=said):
        Kernels.corrected().fitted(given)


def model():
    block = Block.of(
        count=4, attention=QUERY, feedforward=Dense.of(width=4096, inward=2, weights=FP8)
    )
    return Architecture.of(width=1024, vocabulary=32000, tied=0, blocks=(block,))


STEP = jax.jit(lambda estimator, arch, forward, plan: estimator.step(arch, HARDWARE, forward, plan))


def decode(batch=16.0, context=4096.0):
    return ForwardPass.of(sequences=batch, new_tokens=1, cached_tokens=context)


def test_look_ups_that_lack_a_table_are_infeasible(folder):
    estimator = Kernels.from_tables(folder, "h800", 0.35)
    result = STEP(estimator, model(), decode(), KernelsPlan.of())
    limit = result.limits["kernels without a measurement"]
    assert float(limit.need) > 0 and not bool(result.feasible)


def test_the_plain_curves_are_the_roofline():
    """Every efficiency 1: no time is below work over peak, nor below bytes over bandwidth."""
    source = Curves.of()
    for m in (1.0, 64.0, 8192.0):
        shape = Gemm(*numbers(m, 4096, 4096))
        seconds = shape.flops / (CHIP.flops_8 * source.product(CHIP, shape, FP8).mfu)
        moved = m * 4096 + 4096 * 4096 + 2 * m * 4096
        ideal = max(float(shape.flops / CHIP.flops_8), moved / float(CHIP.memory_bandwidth))
        assert ideal <= float(seconds) * (1 + 1e-6) <= 1.5 * ideal


def test_curves_have_finite_gradients_at_the_edges(x64):
    """At no tokens, one token and very many; also of latent and linear attention and experts."""
    zero, sizes = jnp.asarray(0.0), jnp.asarray([1e-3, 1.0, 7.3, 500.0, 1e6])

    def spent(x, source):
        a = source.product(CHIP, Gemm(x, jnp.asarray(512.0), jnp.asarray(512.0)), FP8).mfu
        b = source.decode(CHIP, LATENT, x, jnp.asarray(4096.0), BF16).mfu
        c = source.decode(CHIP, QUERY, x, jnp.asarray(4096.0), BF16).mfu
        d = source.prefill(CHIP, QUERY, x).mfu + source.prefill(CHIP, LATENT, x).mfu
        routed = Routed(EXPERTS, jnp.asarray(1024.0), x, jnp.asarray(4.0), jnp.asarray(4.0))
        e = source.routed(CHIP, routed, "decode").mfu + source.routed(CHIP, routed, "prefill").mfu
        f = sum(source.linear(CHIP, LINEAR, x, s, zero + 1e6)[0] for s in ("decode", "prefill"))
        return a + b + c + d + e + f

    both = jax.jit(jax.vmap(jax.value_and_grad(spent), in_axes=(0, None)))
    for system in ("h800_sxm", "h20_sxm"):
        source = Kernels.corrected().fitted(load_system(system).coefficients["kernels"]).efficiency
        assert all(np.isfinite(x).all() for x in both(sizes, source))
    agree_at(lambda x: spent(x, source), (500.0,), tolerance=1e-4)


def test_latent_queries_count_where_the_cache_is_short(x64):
    """128 queries of 576 and outputs of 512 weigh as much as 242 tokens of cache."""
    source = Curves.of()
    batch, contexts = jnp.asarray(64.0), numbers(64, 65536)
    short, long = (source.decode(CHIP, LATENT, batch, s, BF16) for s in contexts)
    held = (512 + 64) * 2 * 64
    carried = 128 * (2 * 512 + 64) * 2
    flops = 2 * 128 * (2 * 512 + 64) * 64
    seconds = (held + carried) / float(CHIP.memory_bandwidth)
    assert float(short.mfu) == pytest.approx(flops / float(CHIP.flops_16) / seconds, rel=1e-3)
    assert float(short.mfu) < 0.3 * float(long.mfu)


def test_a_batch_that_does_not_fit_says_by_how_much(x64):
    estimator = Kernels.corrected().fitted(load_system("h800_sxm").coefficients["kernels"])
    work = Workload.of(isl=4096, osl=512, batch=1)
    largest = float(estimator.largest_batch(model(), HARDWARE, work, KernelsPlan.of()))
    # the cache of one token: 4 layers of 8 heads of 128 keys and values in two bytes; of a last
    # page of 16 tokens half is wasted; and 15 bytes for each of its logits
    each = 4 * 2 * 8 * 128 * 2 * (4096 + 512 + 8) + 15 * 32000
    limit = STEP(estimator, model(), decode(largest, 4607), KernelsPlan.of()).limits["memory"]
    assert 0 <= float(limit.capacity - limit.need) < each
    more = STEP(estimator, model(), decode(largest + 3, 4607), KernelsPlan.of()).limits["memory"]
    assert float(more.need - limit.need) == pytest.approx(3 * each)
    assert float(more.need) > float(more.capacity)


H20 = load_system("h20_sxm").hardware.chip


def test_work_is_neither_dropped_nor_merged():
    """Sixteen times the work takes several times as long, though nobody reads the results."""
    small, large = (jnp.ones((n, n), jnp.float32) for n in (128, 512))
    times = [seconds(jnp.matmul, x, x, repeats=3, min_seconds=2e-3) for x in (small, large)]
    assert times[1] > 4 * times[0] > 0
    assert 2 * 512**3 / times[1] < 2e13  # no CPU does 20 TFLOP/s


@pytest.mark.parametrize("function, shapes", [
    (kernels.increment, [(4096,)]), (jnp.matmul, [(64, 96), (96, 128)]),
])  # fmt: skip
def test_calls_that_share_a_turn_of_the_loop_each_stand_behind_a_barrier(function, shapes):
    """Accelerators keep it until kernels are fused; a processor's compiler, which shares no turn,
    takes it away before."""
    operands = tuple(jnp.ones(shape, jnp.float32) for shape in shapes)
    one, eight = (kernels.repeat_calls(function, n).lower(1, operands).as_text() for n in (1, 8))
    name = "dot_general" if len(shapes) > 1 else "add %"
    assert (one.count("optimization_barrier"), eight.count("optimization_barrier")) == (1, 8)
    assert eight.count(name) - one.count(name) == 7


@cache
def known():
    """Products whose times follow a law exactly."""
    m, k, n = (x.ravel() for x in np.meshgrid([16.0, 256.0, 4096.0], [512.0, 2048.0, 8192.0],
                                              [1024.0, 4096.0]))  # fmt: skip
    family = families.products("gemm", m, k, n, np.ones(len(m)), FP8, H20)
    law = eff.Product.of(compute=0.8, memory=0.7, fixed=5e-6, rows=60, depth=100, tail=1e5)
    return law, family._replace(seconds=np.asarray(family.predicted(law)),
                                start=family.start.replace(fixed=np.asarray(2e-6)))  # fmt: skip


@cache
def curve():
    return fitted(known()[1], restarts=1)


def test_a_fit_recovers_a_known_law(x64):
    (law, _), answer = known(), curve()
    assert np.abs(answer.seen).max() < 1e-3
    assert np.abs(answer.unseen).max() < 1e-2
    for name in ("compute", "memory", "fixed"):
        assert float(getattr(answer.coefficients, name)) == pytest.approx(
            float(getattr(law, name)), rel=0.02
        )


def rows():
    """Times that look like a device's, two devices."""
    cases = kernels.cases(kernels.TOY)
    built = [Timed(family, shape, 1e-5) for family, shape, *_ in cases if family != "copy"]
    built += [Timed("copy", {"moved": 2.0**k}, 1e-6 + 2.0**k / 1e10) for k in (16, 18, 20, 22)]
    return [*built, Timed("all_reduce", {"moved": 2.0**20}, 1e-3)]


def test_rates_are_those_of_the_fastest():
    chip = profile.chip_of(rows(), 16e9)
    assert float(chip.flops_16) == pytest.approx(2 * 64 * 256 * 256 / 1e-5)
    assert float(chip.memory_bandwidth) == pytest.approx(2**22 / (1e-6 + 2**22 / 1e10))
    assert profile.link_of(rows()) == pytest.approx(2**20 / 1e-3)


def test_a_shape_without_memory_is_left_out():
    lost = [r._replace(seconds=float("nan")) if r.shape.get("m") == 64 else r for r in rows()]
    chip = profile.chip_of(lost, 16e9)
    built = {f.name: f for f in profile.families_of(lost, chip)}
    assert len(built["gemm"].seconds) == 4
    assert np.isfinite(built["gemm"].seconds).all()
    with pytest.raises(InputError, match="out of memory"):
        profile.chip_of([r._replace(seconds=float("nan")) for r in lost], 16e9)
