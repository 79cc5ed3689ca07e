"""Two vLLM servers of which every request was measured, replayed: LLMServingSim's bench/examples.

A folder has ``meta.json``, ``config.json`` and ``requests.jsonl``; a row is a request.
"""

from pathlib import Path

import numpy as np

from experiments._replay import per_request
from experiments._replay.server import served
from experiments._validation.row import Read, Row
from infer_jax.estimators.serving import Serving

FILE = "meta.json"


class Run:
    """A server and its requests, on the machine as its profile has it."""

    def __init__(self, bundle: per_request.Bundle) -> None:
        self.server = bundle.server._replace(hardware=bundle.profile)
        self.requests = bundle.requests

    def answers(self, model: Serving) -> dict[str, np.ndarray]:
        """Times of every request."""
        own = model.replace(engine=np.asarray(2.0), generation=np.asarray(1.0))
        times = served(self.server, own, self.requests)
        front = float(own.front_time(self.server.plan))
        return {"tpot": times.tpot, "ttft": times.ttft + front, "e2e": times.e2e + front}


def read(folder: Path) -> Read:
    """The requests of a folder.

    Raises:
        InputError: a file that is missing or not understood.
    """
    bundle, found = per_request.read(folder), Read()
    run = Run(bundle)
    times = bundle.measured
    for i, times_of in enumerate(zip(*times, strict=True)):
        each: dict[str, float] = {n: float(x) for n, x in zip(times._fields, times_of, strict=True)}
        if not all(np.isfinite(x) and x > 0 for x in each.values()):
            found.skipped["a time that is not above 0"] += 1
            continue
        found.rows.append(
            Row(
                id=f"{folder.name} {i}",
                dataset="llmservingsim requests",
                measured=each,
                group=folder.name,
                system=per_request.SYSTEM,
                engine="vllm",
                asked="replay",
                date="2026-04",
                replayed=run,
                place=i,
            )
        )
    return found
