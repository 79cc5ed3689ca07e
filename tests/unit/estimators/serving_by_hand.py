"""The published form of the serving model once more, in NumPy, from its text and nothing else.

Letters are those of docs/theories/serving.md. A row is a dictionary of plain numbers.
"""

import math
from types import SimpleNamespace

import numpy as np

VISIBLE = 79.18 * 2**30 / 80e9  # of an H100, over its data sheet


def smax(a, b, p=3.0):
    top = max(a, b)
    return top * ((a / top) ** p + (b / top) ** p) ** (1 / p) if top > 0 else 0.0


class Row(SimpleNamespace):
    """One configuration; ``v`` has the coefficients by the letters of the table."""

    def __init__(self, r, v):
        super().__init__(**r, v=v)
        self.G = self.tp * self.dp
        self.s_kv = 1.0 if self.attn in ("mla", "dsa") else min(self.tp, self.n_k)
        linear = 1.0 + 2.0 / 3.0 * self.L_lin / self.L  # 1.5 at three linear layers in four
        self.k = {"gqa": 1.0, "mla": v["k_mla"], "dsa": v["k_dsa"], "hybrid": linear}[self.attn]
        e = {"trtllm": "trt", "sglang": "sgl", "vllm": "vll"}[self.engine]
        self.tauL, self.tauS, self.tauX = (v[f"tau{x}_{e}"] for x in "LSX")
        self.held = {"trtllm": 1.0, "sglang": 0.75, "vllm": 0.5}[self.engine]
        self.fe, self.t0 = v[f"fe_{e}"], v[f"t0_{e}"]
        f_len = 1.0 if self.fixed else 0.9  # drawn from 80 to 100 %
        self.i, self.o = self.isl * f_len, self.osl * f_len

    def eta_c(self, cls):
        gen = "blk" if self.blackwell else "hop"
        block = self.v["e_B"] if cls == "fp8" and self.q > 0 and not self.blackwell else 1.0
        return self.v[f"eta_c_{gen}_{cls}"] * block

    def flops(self, cls):
        return {"bf16": self.f16, "fp8": self.f8, "fp4": self.f4}[cls]

    def seen(self, c):
        """Bytes of KV per GPU and sequence."""
        kv = (self.L_f * c + self.L_w * min(c, self.W_win)) * self.kappa * self.w_kv / self.s_kv
        return kv + self.L_f * c * self.x

    def visits(self, tokens):
        """The share of experts visited, and tokens of the busiest rank over the mean."""
        s, E = self.v["s"], self.E
        if not self.moe:
            return 1.0, 1.0
        rho = 1.0
        if self.A < E:
            nodes, weights = np.polynomial.legendre.leggauss(8)
            u = (1 + nodes) / 2  # x = u^3
            p = np.minimum(self.A / E * (1 - s) * u ** (-3 * s), 0.999)
            rho = float(np.sum(1.5 * u**2 * weights * (1 - (1 - p) ** tokens)))
        a = 1 / (2 * E)
        first, second = ((1 - a ** (1 - k * s)) / (1 - k * s) / (1 - a) for k in (1, 2))
        c = math.sqrt(second / first**2 - 1)
        return rho, 1 + math.sqrt(2 * math.log(self.m_e)) * c * math.sqrt(self.m_e / E)

    def lin(self, n):
        v, B, h, tp, dp = self.v, self.B, self.h, self.tp, self.dp
        N = n * dp if self.moe else n
        rho, busiest = self.visits(N)
        t_a = smax(
            self.P_A * self.w_A / (tp * B * self.v["eta_m"]),
            2 * self.P_A * n / (tp * self.flops(self.c_A) * self.eta_c(self.c_A)),
        )
        chips = self.m_t * self.m_e if self.moe else tp
        eta_f = self.eta_c(self.c_F) * (v["eta_gc"] if self.moe else 1.0)
        rows = busiest * self.A * N + (v["m_0"] * self.E * rho if self.moe else 0.0)
        t_f = smax(
            self.E * rho * self.P_E * self.w_F / (chips * B * self.v["eta_m"]),
            2 * self.P_E * rows / (chips * self.flops(self.c_F) * eta_f),
        )
        if self.moe:  # inputs and outputs of the experts' products move
            moved = busiest * self.A * N / self.m_e * (2 * h + 3 * self.f / self.m_t)
            t_f += v["k_m"] * 2 * moved / B
        t_s = smax(
            self.P_S * self.w_S / (tp * B * self.v["eta_m"]),
            2 * self.P_S * n / (tp * self.flops(self.c_S) * self.eta_c(self.c_S)),
        )
        t_d = smax(
            self.P_D * self.w_A / (tp * B * self.v["eta_m"]),
            2 * self.P_D * n / (tp * self.flops(self.c_A) * self.eta_c(self.c_A)),
        )
        t_el = 16 * n * h / B
        m = 2 * n * h
        t_ar = 0.0
        if tp > 1:
            shots = 2 / tp + (1 - 2 / tp) / (1 + m / 4e6)
            t_ar = v["alpha"] * math.log2(tp) + (tp - 1) * shots * m / (self.N * v["eta_n"])
        second = t_ar
        if dp > 1 and self.moe:
            second = 2 * (self.tauX + 2 * v["alpha"])
            second += 2 * min(dp - 1, self.A) * m / (self.N * v["eta_n"])
        whole = self.L * (t_a + t_el + t_ar + second)
        return whole + (self.L - self.L_d) * (t_f + t_s) + self.L_d * t_d

    def places(self, each):
        """Requests of a group with ``each`` bytes of cache beside all else, by bisection."""
        low, high = 0.0, 1e9
        for _ in range(200):
            n = (low + high) / 2
            fits = self.resident(n) + n * each <= VISIBLE * 0.92 * self.M
            low, high = (n, high) if fits else (low, n)
        return max(low, 0.02 * VISIBLE * self.M / each)

    def resident(self, n):
        """Bytes of a GPU that runs n requests, but their cache: weights, activations, runtime."""
        tp, h, E, A = self.tp, self.h, self.E, self.A
        copies = min(tp, self.n_k) if self.P_kv else 1
        split = self.P_A - self.P_kv - self.P_all
        each = self.L * self.w_A * (split / tp + self.P_kv / copies + self.P_all)
        each += self.L_d * self.P_D * self.w_A / tp + self.L * 2 * self.conv / tp
        spread = self.m_t * self.m_e if self.moe else tp
        router = 2 * h * E if self.moe else 0
        mixture = E * self.P_E * self.w_F / spread + self.P_S * self.w_S / tp + router
        each += (self.L - self.L_d) * mixture
        weights = each * (1 + (self.drafts > 0) / self.L) + 4 * self.V * h / tp

        f, i = 1 + self.drafts, self.i
        tokens = {"trtllm": max(8192, i + n * f), "sglang": 16384, "vllm": 8192}[self.engine]
        tokens, sampled = max(tokens, n * f), n
        inside = tokens * 2 * (self.wide / tp + 3 * h)
        end = tokens * h * 2 + sampled * self.V * 15
        kernel = tokens * 2 * A * (max(2 * self.f / tp, h) + self.f / tp) if self.moe else 0
        runtime = 1.04 + 0.25 + (1.82 if self.G > 1 else 0)
        return weights + kernel + max(inside, end) + runtime * 2**30

    def paged(self, tokens):
        """Bytes of a GPU that a request holds: pages of 16 tokens, of its last ones a half."""
        more = 1 + (self.drafts > 0) / self.L
        counts = [n * more for n in (self.L_f, self.L_w, self.L_lin)]
        there = [n for n in counts if n]
        size = max(there) if max(there) < 1.25 * min(there) else min(there)
        full, near, linear = (math.ceil(n / size * (1 - 1e-6)) for n in counts)
        page = 16 * (self.kappa * self.w_kv / self.s_kv + self.x)
        state = self.S_lin / (2 * self.tp)
        times = max(1, math.ceil(state / page)) if self.L_lin else 1
        pages = full * (tokens / (16 * times) + 0.5) + linear
        pages += near * (min(self.W_win, tokens) / (16 * times) + 0.5)
        return size * page * times * pages

    def answer(self):
        """(TTFT, TPOT, throughput per GPU, C_e, cap)."""
        v, i, o, dp, tp, B = self.v, self.i, self.o, self.dp, self.tp, self.B
        mixtures = self.L - self.L_d
        cap = max(1.0, dp * self.places(self.paged(i + self.held * o)))
        C_e = self.C * math.exp(-np.logaddexp(0.0, 16 * math.log(self.C / cap)) / 16)
        b = max(1.0, C_e / dp)
        d = self.drafts
        mean = np.mean([v[f"acc_{engine}"] for engine in ("trt", "sgl", "vll")])
        decline = np.cumprod(mean * np.array([1.0, 0.79, 0.57, 0.19, 0.19]))
        mu = 1 + sum(decline[: int(d)])
        q = self.queue(b, max(o - 1, 1e-3) / mu)
        balanced = self.balanced(b / q.D, C_e / dp)
        n = max(b * q.share * q.D / (q.D + balanced), 1.0)  # of them decode

        g = v["g_blk"] if self.blackwell else 1.0
        k_F, k_D = (1.0 if cls == "fp4" else v["k_B"] for cls in (self.c_F, self.c_A))
        ov = self.L * self.tauL * self.k
        per_class = v["tauQ"] * (v["q_blk"] if self.blackwell else 1.0)
        ov += (mixtures * k_F + self.L_d * k_D) * per_class * self.q
        ranks = 0.0  # TensorRT-LLM, experts of more than 4 bits, attention tensor parallel
        if self.engine == "trtllm" and dp == 1 and self.c_F != "fp4":
            ranks = v["k_R"] * (1 - 1 / self.m_e)
        ov = g * (ov + (mixtures * (v["k_E"] + ranks) * self.tauL if self.moe else 0.0))

        f16, c = self.f16, i + o / 2

        kind, tile = ("blk", 256) if self.blackwell else ("hop", 64)
        eta = v[f"eta_{16 if self.w_kv > 1 else 8}_{kind}"]
        shared = 1 if self.attn in ("mla", "dsa") else self.n_k
        fill = min(1.0, (1 + d) * self.n_q / (max(tp, shared) * tile))

        def core(c, index=0.0):
            read = c * self.kappa * self.w_kv / self.s_kv + index
            computed = (1 + d) * c * self.a_d / (tp * f16 * eta * fill)
            return n * smax(read / (B * v["eta_kv"]), computed, 10.0)

        c_s = min(c, self.K) if self.attn == "dsa" else c
        t_att = self.L_f * core(c_s, c * self.x) + self.L_w * core(min(c, self.W_win))
        t_att += self.L_lin * n * self.S_lin / (tp * B * v["eta_kv"])
        t_lm = 2 * self.V * self.h / (tp * B * v["eta_m"])
        t_lm += 2 * self.V * self.h * n / (tp * f16 * self.eta_c("bf16"))
        t_d = (self.lin(n * (1 + d)) + ov + t_att) * (1 + d / self.L) + t_lm * (1 + d)
        t_d = t_d / mu + self.tauS * n

        i_c = self.K * (1 - self.K / (2 * i)) if self.attn == "dsa" and i > self.K else i / 2
        seen = self.L_f * i * i_c + self.L_w * i * min(i / 2, self.W_win)
        t_pa = seen * self.a_p / (tp * f16 * v["eta_a"])
        # a part of a prompt reads the parts before it
        parts = (q.c - 1) / 2 * i
        again = self.L_f * parts + self.L_w * min(parts, q.c * self.W_win)
        again = again * self.kappa * self.w_kv / self.s_kv + self.L_f * parts * self.x
        t_pa += again / (B * v["eta_kv"])
        # a pass with y prompts of I tokens beside its decodes, or alone
        y = min(1 + q.met, q.R / i)
        graph = 512 if self.engine == "vllm" else 0  # tokens of the largest one with prompts

        def eager(decoding, prompts, new):
            spread = math.sqrt(decoding * (1 + d) ** 2 + max(prompts - 1, 0) * new**2 + 1)
            rows = decoding * (1 + d) + prompts * new
            share = 0.5 * math.erfc((graph - rows) / spread / math.sqrt(2)) if graph else 1.0
            return share * self.fe * ov * (1 + v["k_I"] * prompts * new / 8192), 1 - share

        gap, _ = eager(0 if q.first else n, y, i)
        fed = 0 if q.first else n * (1 + d)
        g = (self.lin(fed + i * y) - (0 if q.first else self.lin(fed))) / y + t_pa
        g += gap * (1.0 if q.first else 0.8) / y
        launch, replayed = eager(0, 1, i / q.c)
        P = q.c * (self.lin(i / q.c) + launch + replayed * ov) + t_pa

        # till the middle of a pass and another, then what others add to these passes
        t_s = t_d * mu
        p = min(max(b - 1, 0) * q.share / (q.D * y), 1.0)
        if self.fixed:
            others = min(b - 1, 1.5) * y * g
        else:
            mean = t_s + p * y * g
            second = (1 - p) * t_s**2 + p * (t_s + y * g) ** 2
            others = second / (2 * mean) - t_s / 2 + p * y * g
        wait = min(b - 1, 1.0) * 1.5 * t_s + others
        if q.first and self.fixed:
            wait = others = 0.0
        left = max(b - 1 - q.met, 0.0) * g
        wait, others = wait - max(others - left, 0.0), min(others, left)

        each = (left - others) / max(o - 1, 1e-3)
        tpot = t_d + (each if q.first else min(each, g * q.R / (i * mu)))
        own = max(g + (0 if q.first else q.c * t_s) - P, 0.0) * min(b - 1, 1.0)
        first = self.t0 + wait + balanced * tpot * mu + P
        first += (0 if q.first else own) + q.met * g + q.w * t_s
        wave = 0.0
        if not (q.first and self.fixed):  # the first wave
            wave = (b - 1) * (g + (0 if q.first else q.c * t_s / y)) / (2 * self.waves)
            first += wave
        ttft = first + (self.C / C_e - 1) * (first + (o - 1) * tpot)
        # what start and end of the benchmark take beyond a server that runs on, a request
        w, beside = self.waves * max(self.C / cap, 1.0), 0.0 if q.first else 1.0
        f = w - math.ceil(w) + 1 if self.fixed else 0.5 if w > 1 else 1.0
        period = q.D + q.c * beside
        passes = f * min(b * i / q.R * beside, period) + (1 - f) * period
        fixed = 2 * self.lin(n * (1 + d) / 2) - self.lin(n * (1 + d)) + ov
        whole = ttft + (o - 1) * tpot + passes * fixed / self.waves - wave * self.C / C_e
        # of w requests one is of the wave, whose waits are even from 0 to 2 w wave
        middle = 2 * self.waves * wave * max(1 - self.waves / 2, 0.0)
        median = ttft + (middle - wave) * self.C / C_e
        return ttft, tpot, self.C * o / whole / self.G, C_e, cap, median

    def balanced(self, arrivals, b):
        """Passes until all groups have a prompt, where all decode and lengths are not equal."""
        dp, timeout = self.dp, self.balance
        if self.fixed or dp == 1 or timeout == 0.0:
            return 0.0
        nodes, weights = np.polynomial.legendre.leggauss(10)
        end = timeout / max(1.0, arrivals * timeout / (8 + math.log(dp)))
        t = (1 + nodes) / 2 * end
        one = 1 - np.exp(-(arrivals * t + 1e-12))
        wait = weights @ (t * (1 - one ** (dp - 1))) / (weights @ (1 - one**dp))
        return (1 - math.exp(-b)) ** dp * wait

    def queue(self, b, D):
        """Who meets whom: c own passes of R prompt tokens, w more, `met` prompts of others."""
        i, f, first = self.i, 1 + self.drafts, self.engine == "sglang"
        R = {"trtllm": max(8192, i + b * f), "sglang": 16384, "vllm": 8192}[self.engine]
        q = SimpleNamespace(D=D, first=first, R=R, w=0.0, share=1.0)
        if first:
            n = 1 + (b - 1 if self.fixed else min((b - 1) / max(D, 1.0), b - 1))
            q.c, q.met = math.ceil(i / R), (n + min(n, max(R / i, 1.0))) / 2 - 1
            return q
        period = max(D + math.ceil(i / R), b * (i + f * D) / R)
        q.R = R - f * b * D / period
        s = i / q.R
        q.c = math.ceil(s)
        if self.fixed:
            q.w = max(b * s - D - q.c, 0.0)
            missing = (math.ceil(b * s) - b * s) * max(1 - q.w, 0.0)
            full = max(q.c - s - missing / b, 0.0) if q.c > 1 else 0.0
            full = max(full, (b / (D + q.c + q.w) - 1) * s) + q.w
        else:
            A = D + q.c - (b - 1) * s
            W = (math.sqrt(A * A + 2 * (b - 1) * s * s) - A) / 2
            u = min(max((b - 1) * s / (D + q.c + W), 1e-9), 1.0)
            U = W * u ** (1 / s) + u / 2
            scale = max(U, 1e-6)
            q.w = math.exp(-(q.c - s) / scale) / -math.expm1(-1 / scale)
            q.w = min(q.w, U + 1)
            full = min(U + u / 2, q.w + q.c - s)
        q.met = min(full / s, b - 1)
        q.share = D / (D + q.c + q.w)
        return q
