"""The serving estimator: equal to its published form, and sound beyond it."""

import jax
import numpy as np
import pytest

from infer_jax.catalog.published import serving_coefficients
from infer_jax.estimators import Economics
from infer_jax.estimators.serving import ENGINES, Deployment, Serving, ServingWorkload, shape
from infer_jax.specs import (
    Architecture,
    Attention,
    Block,
    Chip,
    Dense,
    Experts,
    Format,
    ForwardPass,
    GroupedQuery,
    Hardware,
    Hierarchy,
    Latent,
    Linear,
    Sparse,
)
from tests.contract.cases import dense, nodes
from tests.unit.estimators.compiled import estimate, quickly, step
from tests.unit.estimators.serving_by_hand import Row

ROWS = 240
CLASSES = {"bf16": 16.0, "fp8": 8.0, "fp4": 4.0}
STORED = {"bf16": (2.0, 0.53), "fp8": (1.0, 1.0), "fp4": (0.5625, 0.5625)}


def drawn(rng):
    """One random model and configuration: (row by hand, what the estimator is given)."""

    def pick(*options):
        return options[rng.integers(len(options))]

    h, V = pick(2048, 4096, 7168), pick(32000, 128256)
    attn, moe = pick("gqa", "mla", "dsa", "hybrid", "windowed"), bool(rng.integers(2))
    c_A, c_F, c_S = (pick(*CLASSES) for _ in range(3))
    w_A, w_F, w_S = (pick(*STORED[c]) for c in (c_A, c_F, c_S))
    w_kv = pick(1.0, 2.0)
    L = int(rng.integers(4, 80))
    L_d = int(rng.integers(0, 4)) if moe and attn not in ("hybrid", "windowed") else 0
    special = L // 3 if attn in ("hybrid", "windowed") else 0
    row = {"h": h, "V": V, "L": L, "L_d": L_d, "L_w": 0, "L_lin": 0, "moe": moe, "W_win": 1e12,
           "K": 1e12, "x": 0.0, "S_lin": 0.0, "w_A": w_A, "w_F": w_F, "w_S": w_S, "c_A": c_A,
           "c_F": c_F, "c_S": c_S, "w_kv": w_kv, "P_S": 0.0, "P_D": 0.0}  # fmt: skip

    own = Format.of(bytes=w_A, bits=CLASSES[c_A])
    n_h, n_k, d = pick(16, 32, 64), pick(2, 4, 8), pick(64, 128)
    gate = pick(0.0, 1.0)
    full = GroupedQuery.of(
        query_heads=n_h, kv_heads=n_k, head_width=d, value_width=d, query_gate=gate, weights=own
    )
    P_full = h * d * (n_h * (1 + gate) + 2 * n_k) + n_h * d * h
    row |= {"attn": "gqa", "P_A": P_full, "kappa": 2 * n_k * d, "n_k": n_k, "a_d": 4 * n_h * d}
    row["n_q"] = n_h
    row |= {"a_p": 4 * n_h * d, "L_f": L - special}
    # of the projections: keys and values, and what every rank has; numbers a token in and out
    row |= {"P_kv": 2 * n_k * d * h * (L - special) / L, "P_all": 0, "conv": 0}
    row["wide"] = d * (n_h * (1 + gate) + 2 * n_k)
    mixers: list[tuple[int, Attention]] = [(L - L_d - special, full)]
    if attn == "windowed":
        row |= {"L_w": special, "W_win": 128.0}
        row["P_kv"] = 2 * n_k * d * h
        mixers.append((special, full.with_(window=128.0)))
    if attn == "hybrid":
        K_d, V_d, heads = 128 * 16, 128 * 32, 32
        linear = Linear.of(
            key_heads=16, key_width=128, value_heads=heads, value_width=128, conv_width=1,
            head_gates=0, weights=own,
        )  # fmt: skip
        P_lin = h * (2 * K_d + 2 * V_d) + V_d * h
        row |= {"attn": "hybrid", "L_lin": special, "S_lin": 2 * 4 * heads * 128 * 128}
        row["P_A"] = ((L - special) * P_full + special * P_lin) / L
        row["conv"] = special / L * (2 * K_d + V_d)
        row["wide"] = max(row["wide"], 2 * K_d + 2 * V_d)
        mixers.append((special, linear))
    if attn in ("mla", "dsa"):
        q, c, d_n, d_r, d_v = 1536, 512, 128, 64, 128
        latent = Latent.of(
            query_heads=n_h, nope_width=d_n, rope_width=d_r, value_width=d_v, kv_rank=c,
            query_rank=q, weights=own,
        )  # fmt: skip
        P_A = h * q + q * n_h * (d_n + d_r) + h * (c + d_r) + c * n_h * (d_n + d_v) + n_h * d_v * h
        row |= {"attn": attn, "P_A": P_A, "kappa": c + d_r, "n_k": 1, "n_q": n_h}
        row |= {"a_d": 2 * n_h * (2 * c + d_r)}
        row |= {"a_p": 2 * n_h * (d_n + d_r + d_v), "P_kv": 0, "P_all": h * (q + c + d_r)}
        row["wide"] = n_h * (2 * d_n + d_r + d_v)
        mixers = [(L - L_d, latent)]
        if attn == "dsa":
            index = Sparse.of(
                base=latent, top_k=2048, index_heads=64, index_width=128, index_query_input=q,
                index_cache=Format.of(bytes=1.03, bits=8),
            )  # fmt: skip
            row |= {"K": 2048.0, "x": 128 * 1.03}
            row["P_A"] += 64 * 128 * q + (128 + 64) * h
            row["P_all"] += 64 * 128 * q + (128 + 64) * h
            mixers = [(L - L_d, index)]

    f = pick(768, 2048)
    if moe:
        E, A = pick((128, 8), (256, 8), (32, 4))
        row |= {"E": E, "A": A, "P_E": 3 * h * f, "P_S": 3 * h * f, "f": f}
        row["wide"] = max(row["wide"], 3 * f)
        shared = Dense.of(width=f, inward=2, weights=Format.of(bytes=w_S, bits=CLASSES[c_S]))
        feed = Experts.of(
            experts=E, active=A, width=f, inward=2, shared=shared,
            weights=Format.of(bytes=w_F, bits=CLASSES[c_F]),
        )  # fmt: skip
    else:
        row |= {"E": 1, "A": 1, "P_E": 3 * h * 4 * f, "f": 4 * f}
        row["wide"] = max(row["wide"], 3 * 4 * f)
        feed = Dense.of(width=4 * f, inward=2, weights=Format.of(bytes=w_F, bits=CLASSES[c_F]))
    blocks = [Block.of(count=n, attention=a, feedforward=feed) for n, a in mixers]
    if L_d:
        row["P_D"] = 3 * h * 9 * f
        row["wide"] = max(row["wide"], 3 * 9 * f)
        dense = Dense.of(width=9 * f, inward=2, weights=own)
        blocks.append(Block.of(count=L_d, attention=mixers[0][1], feedforward=dense))
    cache = Format.of(bytes=w_kv, bits=16)
    arch = Architecture.of(width=h, vocabulary=V, tied=0, blocks=tuple(blocks), cache=cache)

    tp, dp = (pick((1, 1), (2, 1), (4, 1), (8, 1), (1, 8), (2, 4))) if moe else (pick(1, 2, 8), 1)
    m_e = pick(*(m for m in (1, 2, 4, 8) if tp * dp % m == 0)) if moe else 1
    q = int(rng.integers(3))
    blackwell = c_A == "fp4" or c_F == "fp4" or c_S == "fp4" or bool(rng.integers(2))
    row |= {"tp": tp, "dp": dp, "m_e": m_e, "m_t": tp * dp / m_e, "q": q, "blackwell": blackwell}
    row |= {
        "engine": pick(*ENGINES), "fixed": bool(rng.integers(2)),
        "isl": float(rng.integers(20, 9000)), "osl": float(rng.integers(2, 4000)),
        "waves": pick(1.5, 10.0, 1e9), "balance": pick(0.0, 60.0),
        "C": float(np.ceil(10 ** rng.uniform(0, 3))),
        "drafts": int(rng.integers(4)) if rng.integers(3) == 0 else 0,
        "B": rng.uniform(2e12, 8e12), "f16": rng.uniform(8e14, 2.3e15),
        "f8": rng.uniform(1.6e15, 4.6e15), "f4": rng.uniform(6e15, 1.4e16),
        "N": rng.uniform(4e11, 9e11), "M": rng.uniform(8e10, 2.9e11),
    }  # fmt: skip
    chip = Chip.of(
        flops_16=row["f16"], flops_8=row["f8"], flops_4=row["f4"], memory=row["M"],
        memory_bandwidth=row["B"],
    )  # fmt: skip
    network = Hierarchy.of(domain=8, domain_bandwidth=row["N"], network_bandwidth=5e10)
    given = (
        Serving.of(engine=row["engine"], generation=float(blackwell)),
        shape(arch, blocks=2)._replace(quantised=np.asarray(float(q))),
        Hardware.of(chip=chip, network=network, price=3.0),
        ServingWorkload.of(
            isl=row["isl"], osl=row["osl"], batch=row["C"], fixed=float(row["fixed"]),
            nominal=float(not row["fixed"]), waves=row["waves"],
        ),
        Deployment.of(
            tp=tp, ep=m_e, attention_dp=dp, drafts=row["drafts"], balance_timeout=row["balance"]
        ),
    )  # fmt: skip
    return row, given


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(7)
    return [drawn(rng) for _ in range(ROWS)]


@pytest.fixture(scope="module")
def served(rows):
    """All random rows, in one program."""
    many = jax.tree.map(
        lambda *x: np.stack([np.asarray(v, np.float64) for v in x]), *(given for _, given in rows)
    )
    return quickly(jax.vmap(lambda s, *rest: s.estimate_shape(*rest)))(*many)


def test_equals_its_published_form(rows, served):
    letters = {f.symbol: f.value for f in serving_coefficients().values()}
    by_hand = np.array([Row(row, letters).answer() for row, _ in rows])
    ours = (served.ttft, served.tpot, served.throughput, served.running, served.places)
    names = ("ttft", "tpot", "rate", "C_e", "cap", "median")
    for i, (name, column) in enumerate(zip(names, (*ours, served.ttft_median), strict=True)):
        np.testing.assert_allclose(column, by_hand[:, i], rtol=1e-12, err_msg=name)


def test_the_median_has_no_wave_and_is_no_longer_than_the_mean(rows, served):
    assert np.all(served.ttft_median <= served.ttft)
    on = np.array([row["waves"] == 1e9 for row, _ in rows])
    np.testing.assert_allclose(served.ttft_median[on], served.ttft[on], rtol=1e-5)
    benchmark = np.array([row["waves"] == 10 and row["C"] > 100 for row, _ in rows])
    assert np.median((served.ttft / served.ttft_median)[benchmark]) > 1.1


def test_the_rows_reach_every_corner(rows, served):
    """Random rows prove little where they avoid what is hard."""
    for name in ("moe", "fixed", "blackwell", "drafts", "L_d", "L_w", "L_lin", "x"):
        assert {bool(row[name]) for row, _ in rows} == {False, True}, name
    full = served.running / np.array([row["C"] for row, _ in rows])
    assert full.min() < 0.3 and full.max() > 0.999
    assert np.all(np.isfinite(np.stack([np.asarray(x) for x in jax.tree.leaves(served)], axis=-1)))


def test_loses_nothing_at_the_roofline():
    """No gaps, no waits, data-sheet rates: level 1 of the economics model, and TPOT one pass."""
    arch = dense().with_(vocabulary=0.0, vectors=0.0)
    arch = arch.replace(blocks=tuple(b.with_(vectors=0.0) for b in arch.blocks))
    level1 = Economics.level1().with_(flop_cap=1.0, memory_cap=1.0, root_hop=0.0, root_base=0.0)
    hardware, plan = nodes(), Deployment.of()
    for batch in (1.0, 30.0, 3000.0):
        forward = ForwardPass.of(sequences=batch)
        ours = step(Serving.roofline(), arch, hardware, forward, plan)
        theirs = step(level1, arch, hardware, forward, plan)
        np.testing.assert_allclose(ours.time, theirs.time, rtol=1e-6)  # 2^(1/overlap) at a tie
    alone = estimate(Serving.roofline(), arch, hardware, ServingWorkload.of(isl=64, osl=9), plan)
    forward = ForwardPass.of(sequences=1, cached_tokens=64 + 9 / 2)
    one = step(Serving.roofline(), arch, hardware, forward, plan)
    np.testing.assert_allclose(alone.tpot, one.time, rtol=1e-12)
    np.testing.assert_allclose(alone.speed, 1.0 / one.time, rtol=1e-12)
