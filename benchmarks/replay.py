"""How many times faster is the replay than the same scheduler in plain Python? In one run.

``python -m benchmarks.replay`` serves the same requests of random servers
(``tests/referee/serving.py``) with the compiled replay and with the referee that it equals, turn by
turn; then many lanes of it, on as many threads as there are cores. Best of some runs of each side,
taken in turn, for the machine may be busy. Beside that requests of copies that come and go.
``--json`` prints one line, ``--rules vllm`` measures these alone, ``--rules fleet`` the copies.

XLA makes one piece of machine code of a loop only if it is told that loops this large may be; the
option is given by the environment, and this program sets it before it loads jax.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

FLAG = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=100000000"
if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.tree_util import Partial  # noqa: E402

from infer_jax.replays import (  # noqa: E402
    Preempting,
    PrefillFirst,
    Requests,
    Rules,
    lanes,
    reference,
    replay,
    replay_copies,
    vllm,
)
from infer_jax.replays.cluster import Windows  # noqa: E402
from infer_jax.replays.loops import sizes_of  # noqa: E402
from tests.referee import serving  # noqa: E402
from tests.referee.servers import Drawn, drawn  # noqa: E402
from tests.referee.serving import Case, Machine, step_time  # noqa: E402

REQUESTS, SLOTS = 1000, 64
TURNS = 2  # the referee takes up to a second
FLEETS = ((20_000, 16), (170_000, 16), (170_000, 100), (1_000_000, 64))  # requests, copies
A_COPY = 4.0  # requests a second
# seconds of a pass, of each request that decodes, token of context, prompt token and pair
PASS = (8e-3, 2e-5, 4e-8, 4e-5, 1e-9)


class Server(NamedTuple):
    """A case with its requests, as both sides take them."""

    case: Case
    requests: Drawn
    engine: str  # whose rules

    def sizes(self) -> tuple[int, int, int, int]:
        """Budget, slots, blocks and tokens of a block, which are single ones in SGLang."""
        e = self.case.engine
        each = e.block if self.engine == "sglang" else 1
        return e.budget, e.slots, e.blocks * each, e.block // each

    def ours(self) -> tuple[Machine, Rules, Requests]:
        budget, slots, blocks, block = self.sizes()
        sizes = {"budget": budget, "slots": slots, "blocks": blocks, "block": block}
        rules = RULES[self.engine].of(**sizes, overlap=1)
        return Machine(*map(np.asarray, self.case.machine)), rules, Requests.of(*self.requests[:3])

    def theirs(self) -> float:
        """When the last request has its last token."""

        def step(decoding: float, context: float, new: float, pairs: float) -> float:
            return step_time(self.case.machine, decoding, context, new, pairs)

        kind = reference.Vllm if self.engine == "vllm" else reference.Sglang
        engine = kind(*self.sizes(), overlap=True)
        done = reference.serve_plainly(step, engine, self.requests.lengths())
        return max(r.last for r in done)


RULES: dict[str, type[Rules]] = {"vllm": Preempting, "sglang": PrefillFirst}


def servers(count: int, engine: str) -> list[Server]:
    """Random servers with arrivals and at most ``SLOTS`` slots."""
    cases = [c for c in serving.cases(8 * count) if c.concurrency is None]
    cases = [c for c in cases if c.engine.slots <= SLOTS][:count]
    return [Server(c, drawn(c, REQUESTS, i), engine) for i, c in enumerate(cases)]


def sizes(given: list[Server]) -> dict[str, int]:
    """Slots and entries of a path of one program for all of them, as ``serve`` chooses them."""
    each = [sizes_of(*server.ours()[1:]) for server in given]
    return dict(zip(("width", "entries"), map(max, zip(*each, strict=True)), strict=True))


def last(
    machine: Machine, rules: Rules, requests: Requests, *, width: int, entries: int
) -> tuple[jax.Array, jax.Array]:
    """When the last request has its last token, and whether all were served."""
    step = Partial(step_time, machine)
    log = replay(step, rules, requests, width=width, entries=entries)
    return jnp.max(jnp.where(log.there, log.last, 0.0)), log.complete


def cast(tree: tuple, kind: type) -> tuple:
    return jax.tree.map(
        lambda x: jnp.asarray(x, kind) if np.asarray(x).dtype == np.float64 else jnp.asarray(x),
        tree,
    )


def single_server(given: list[Server], kind: type) -> dict[str, float]:
    """Medians over servers of the ratio to the referee, and of our microseconds a request.

    All are seconds of the processor: those on the wall count whatever else a machine runs.
    """
    program, ratios, ours, theirs = jax.jit(partial(last, **sizes(given))), [], [], []
    for server in given:
        arguments = cast(server.ours(), kind)
        end, complete = jax.block_until_ready(program(*arguments))
        assert complete
        spent, referee = [], []
        expected = server.theirs()
        for _ in range(TURNS):
            referee.append(clocked(server.theirs)[1])
            for _ in range(5):
                spent.append(clocked(lambda: jax.block_until_ready(program(*arguments)))[1])  # noqa: B023
        ours.append(min(spent))
        theirs.append(min(referee))
        ratios.append(theirs[-1] / ours[-1])
        assert abs(float(end) / expected - 1.0) < (1e-9 if kind == np.float64 else 1e-2)
    return {
        "ratio_median": float(np.median(ratios)),
        "ratio_least": float(np.min(ratios)),
        "ratio_most": float(np.max(ratios)),
        "ours_us_a_request": float(np.median(ours)) / REQUESTS * 1e6,
        "referee_us_a_request": float(np.median(theirs)) / REQUESTS * 1e6,
    }


def many_servers(given: list[Server], count: int, kind: type, threads: int) -> dict[str, float]:
    """Lanes on ``threads`` threads, against the referee's own seconds for the same servers."""
    alone = []
    for server in given:
        both = [clocked(server.theirs) for _ in range(TURNS // 2)]
        alone.append(np.min(both, axis=0))
    referee, referee_busy = (np.mean(alone, axis=0) * count).tolist()
    many = [given[i % len(given)] for i in range(count)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *[cast(s.ours(), kind) for s in many])
    parts = [jax.tree.map(lambda x, i=i: x[i::threads], stacked) for i in range(threads)]
    one = partial(last, **sizes(given))
    program = jax.jit(lambda each: lanes(one, *each))
    jax.block_until_ready(program(parts[0]))
    spent = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            spent.append(
                clocked(lambda: list(pool.map(lambda p: jax.block_until_ready(program(p)), parts)))
            )
        result = list(pool.map(program, parts))
    assert all(bool(jnp.all(complete)) for _, complete in result)
    seconds, busy = np.min(spent, axis=0).tolist()
    return {
        "ratio": referee / seconds, "ratio_of_processor_seconds": referee_busy / busy,
        "seconds": seconds, "processor_seconds": busy, "referee_seconds": referee,
    }  # fmt: skip


def fleet(count: int, copies: int) -> dict[str, float]:
    """Requests of copies of which each is there for two thirds of the time, by vLLM's rules."""
    random = np.random.default_rng(0)
    arrival = np.cumsum(random.exponential(1.0 / (A_COPY * copies), count))
    prompt, output = (
        np.clip(random.lognormal(*of, count), 1, 4000).astype(int) for of in ((6.5, 1), (5.3, 0.8))
    )
    begin = arrival[-1] / 3.0 * random.random(copies)
    begin[0] = 0.0
    windows = Windows(begin, begin + arrival[-1] * np.where(begin > 0.0, 2.0 / 3.0, 2.0))
    requests, rules = Requests.of(arrival, prompt, output), vllm(blocks=20_000, slots=256)
    width, entries = sizes_of(rules, requests)

    def seconds(coefficients: jax.Array, *feeds: jax.Array) -> jax.Array:
        return coefficients[0] + sum(c * x for c, x in zip(coefficients[1:], feeds, strict=True))

    step = Partial(seconds, jnp.asarray(PASS))
    how = {"copies": copies, "router": "shortest_queue", "width": width, "entries": entries}
    program = jax.jit(partial(replay_copies, **how))
    begun = time.perf_counter()
    compiled = program.lower(step, rules, requests, None, None, windows).compile()
    compiling = time.perf_counter() - begun
    run = partial(compiled, step, rules, requests, None, None, windows)
    log = jax.block_until_ready(run())
    assert log.complete
    spent = [clocked(lambda: jax.block_until_ready(run())) for _ in range(2)]
    memory = compiled.memory_analysis()
    assert memory is not None
    sizes = memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.temp_size_in_bytes
    return {
        "compiling_s": compiling, "seconds": min(x[0] for x in spent),
        "processor_seconds": min(x[1] for x in spent), "entries": int(log.log.entries),
        "MB": sum(sizes) / 1e6,
    }  # fmt: skip


def clocked(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds that a call takes, on the wall and of the processor."""
    begun, busy = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - begun, time.process_time() - busy


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", type=int, default=10)
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--rules", choices=[*RULES, "fleet"], action="append")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    threads = os.cpu_count() or 1
    figures: dict[str, object] = {"requests": REQUESTS, "load": os.getloadavg()[0]}
    measured = asked.rules or [*RULES, "fleet"]
    if "fleet" in measured:
        for count, copies in FLEETS:
            figures[f"{count:,} requests of {copies} copies"] = fleet(count, copies)
    for engine in (x for x in measured if x in RULES):
        given = servers(asked.servers, engine)
        for kind in (np.float64, np.float32):
            name = f"{engine}, {np.dtype(kind).name}"
            figures[f"{name}, one server"] = single_server(given, kind)
            figures[f"{name}, {asked.lanes} lanes on {threads} threads"] = many_servers(
                given, asked.lanes, kind, threads
            )
    if asked.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
