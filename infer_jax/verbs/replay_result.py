"""The result of ``replay``: times with their percentiles, the server over time, every request."""

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from infer_jax.catalog.files import replacing
from infer_jax.estimators import Trust
from infer_jax.estimators.known_errors import NAMES
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import digits, or_unknown
from infer_jax.specs import Plan
from infer_jax.verbs import inputs, pictures, replay_notes as sentences
from infer_jax.verbs.limits import long_times
from infer_jax.verbs.replay_cluster import PoolSplit, ReplayRouting
from infer_jax.verbs.replay_requests import Lengths, Load, ReplayDrafts, randomly
from infer_jax.verbs.replay_runs import ReplayRun, TimeStatistic, names, statistic
from infer_jax.verbs.replay_server import ReplayedInstance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMES = {  # the times of a request
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "time between tokens",
    "latency": "latency",
}
MEASURED = ("ttft", "tpot", "latency")
LABELS = {"ttft": "TTFT", "tpot": "TPOT", "latency": "latency"}


@dataclass(frozen=True, repr=False)
class ReplayResult(Pictured):
    """What a server did in one run or more: ``runs`` has every request, in seconds and tokens."""

    asked: inputs.Given
    estimator: str
    trust: Trust
    plan: Plan
    server: ReplayedInstance
    load: Load
    lengths: Lengths
    runs: Sequence[ReplayRun]
    limits: Mapping[str, float]
    pools: PoolSplit | None = None
    drafts: ReplayDrafts | None = None
    ranks: ReplayRouting | None = None

    @cached_property
    def times(self) -> dict[str, TimeStatistic]:
        """TTFT, TPOT, the time between tokens and latency, s: means, percentiles, their errors."""
        statistics = {}
        for name in MEASURED:
            statistics[name] = statistic([run.of(name) for run in self.runs], sure=self._random)
        gaps = [run.gaps for run in self.runs]
        statistics["itl"] = statistic([g.seconds for g in gaps], [g.count for g in gaps])
        return {name: statistics[name] for name in TIMES}

    @property
    def _random(self) -> bool:
        return randomly(self.load, self.lengths) or self.drafts is not None

    @property
    def _yields(self) -> float | None:
        """Tokens after the first of a request in a pass, the mean over passes; None without any."""
        passes = sum(float(run.gaps.count.sum()) for run in self.runs)
        tokens = sum(float((run.output - 1)[run.counted].sum()) for run in self.runs)
        return tokens / passes if passes else None

    @cached_property
    def measured(self) -> dict[str, TimeStatistic]:
        """The same as a server had them, where the trace says so and is replayed as it was."""
        run = self._real
        if run is None:
            return {}
        return {name: statistic([run.of(name)]) for name in MEASURED}

    @property
    def _real(self) -> ReplayRun | None:
        """The requests as the server of the trace had them."""
        trace, run = self.lengths.trace, self.runs[0]
        if trace is None or not len(trace.first) or self.load.is_given:
            return None
        count = len(run.prompt)
        first, last = trace.first[:count], trace.last[:count]
        return run._replace(arrival=trace.arrivals[:count], first=first, last=last)

    @property
    def throughput(self) -> float:
        """Output tokens per second, of all copies."""
        return self._mean(lambda run: run.output[run.counted].sum() / run.duration)

    @property
    def request_throughput(self) -> float:
        """Requests per second, of all copies."""
        return self._mean(lambda run: run.counted.sum() / run.duration)

    @property
    def goodput(self) -> float | None:
        """Requests per second that meet all limits; None where there are none."""
        return self._mean(lambda run: run.good(dict(self.limits))) if self.limits else None

    @property
    def energy(self) -> float | None:
        """Joules of all chips per output token; None where the chip's power is not known."""
        if not len(self.runs[0].series[0].power):
            return None
        chips = float(self.plan.tp)
        return self._mean(lambda run: chips * run.joules / run.output[run.counted].sum())

    @property
    def _cached(self) -> float:
        """Per cent of prompt tokens that were in the cache."""
        return self._mean(
            lambda run: 100.0 * run.cached[run.counted].sum() / run.prompt[run.counted].sum()
        )

    @cached_property
    def _left_waiting(self) -> float:
        """Requests of a run that wait when the last one comes, where arrivals overload a server."""
        if self.load.concurrency is not None:
            return 0.0
        return self._mean(lambda run: run.left_waiting)

    def _mean(self, of: Callable[[ReplayRun], float]) -> float:
        """The mean over runs."""
        return float(np.mean([of(run) for run in self.runs]))

    def _peak(self, name: str) -> float:
        """The largest value of a series, of any copy and run."""
        return max(run.peak(name) for run in self.runs)

    def fields(self) -> Mapping[str, object]:
        """Times in ms with their standard errors, rates, what was full, and what was asked."""
        rules, load, run = self.server.rules, self.load, self.runs[0]
        trace = self.lengths.trace
        times = {f"{name}_ms": x.ms() for name, x in self.times.items()}
        errors = {f"{name}_standard_error_ms": x.errors_ms() for name, x in self.times.items()}
        real = {f"measured_{name}_ms": x.ms() for name, x in self.measured.items()}
        return {
            **self.asked.names,
            "estimator": self.estimator,
            "trust": self.trust.fields(),
            "engine": self.server.engine,
            "tp": self.plan.tp,
            "copies": self.plan.dp,
            **(self.ranks.fields(self.plan, self.runs) if self.ranks else {}),
            **(self.pools.fields() if self.pools else {}),
            "total_gpus": self.pools.gpus if self.pools else self.plan.chips,
            "max_num_seqs": rules.slots,
            "max_num_batched_tokens": rules.budget,
            "block_size_tokens": rules.block,
            "kv_cache_size_tokens": self.server.tokens,
            **self._drafted(),
            "trace": None if trace is None else trace.file,
            "concurrency": load.concurrency,
            "request_rate_per_s": load.rate,
            "prompts": len(run.prompt),
            "warmup": int((~run.counted).sum()),
            "runs": len(self.runs),
            "isl_tokens": self._mean(lambda run: run.prompt[run.counted].mean()),
            "osl_tokens": self._mean(lambda run: run.output[run.counted].mean()),
            "cached_prompt_percent": self._cached,
            **self._cache_fields(),
            **times,
            **errors,
            **real,
            "throughput_tokens_per_s": self.throughput,
            "requests_per_s": self.request_throughput,
            "goodput_requests_per_s": self.goodput,
            "limits": {f"{name}_ms": 1e3 * limit for name, limit in self.limits.items()},
            "in_flight": self._mean(lambda run: run.in_flight),
            "overloaded": bool(self._left_waiting),
            "duration_s": self._mean(lambda run: run.duration),
            "preemptions": self._mean(lambda run: run.preemptions),
            "queue_peak": self._peak("queue"),
            "running_peak": self._peak("running"),
            "cache_peak_percent": 100.0 * self._peak("cache"),
            "energy_per_output_token_j": self.energy,
            "notes": self.notes(),
        }

    def _drafted(self) -> Mapping[str, object]:
        """Drafts of a pass and what it yields, where tokens are drafted."""
        if self.drafts is None:
            return {}
        return {"drafts": self.drafts.count, "tokens_per_pass": self._yields}

    @property
    def _has_cache(self) -> bool:
        """Whether the scheduler itself looks prompts up in its cache."""
        return all(len(x.kept) for run in self.runs for x in run.series)

    def _cache_fields(self) -> Mapping[str, object]:
        """Shared prefixes, and mean shares of the cache, where there are any."""
        one = self.lengths.shared
        said: dict[str, object] = {}
        if one is not None:
            said = {"prefix_tokens": one.tokens, "prefixes": one.count}
        for name, title in (("cache", "cache"), ("kept", "cache_kept")) if self._has_cache else ():
            mean = self._mean(lambda run, name=name: run.time_mean(name))
            said[f"{title}_mean_percent"] = 100.0 * mean
        if float(self.server.rules.host):
            said["host_blocks"] = self.server.rules.host
        return said

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a request."""
        return [row for i, run in enumerate(self.runs) for row in run.rows(i)]

    def notes(self) -> list[str]:
        """What was replayed, what times hold, and what is not modelled."""
        runs, load, trace = self.runs, self.load, self.lengths.trace
        times = sentences.IN_TIMES.format(digits(1e3 * self.server.front))
        words = None if self.drafts is None else self.drafts.words
        said = [sentences.ERRORS, times, sentences.step_times(words, pools=self.pools is not None)]
        if self.drafts is not None:
            said += [] if self._yields is None else [sentences.GROUPS.format(self._yields)]
            said += self.drafts.notes
        if self.ranks is not None:
            said.append(self.ranks.note)
        said += self._caching()
        if trace is not None and trace.dropped:
            said.append(f"{trace.dropped} requests of the trace that failed are left out.")
        if load.concurrency is not None and load.rate is not None:
            said.append(sentences.HELD.format(load.concurrency))
        elif load.concurrency is not None:
            said.append(sentences.IN_FLIGHT)
            if (~runs[0].counted).sum() < load.concurrency < len(runs[0].prompt):
                said.append(sentences.BURST.format(load.concurrency))
        if self.pools:
            said.append(sentences.POOLS)
        elif float(self.plan.dp) > 1 and (self.ranks is None or self.ranks.ranks > 1):
            said.append("Requests are dealt to the copies in turn, each with its own queue.")
        if len(runs) > 1:
            said.append(sentences.SEVERAL.format(len(runs)))
        elif self._random:
            said.append(sentences.BATCHED)
        if any(run.preempted.any() for run in runs):
            said.append("Times between tokens leave out what requests wait after a preemption.")
        own = (note for note in self.asked.notes if "USD/h" not in note)
        return [*long_times(self.limits), *said, *own]

    def _caching(self) -> list[str]:
        """How prompts are found in the cache, and in host memory."""
        if not self.lengths.caching:
            return [sentences.UNCACHED if self.lengths.alike else "No prefix is cached."]
        if not self._has_cache:
            return [sentences.CACHED]
        host, fetch = float(self.server.rules.host), float(self.server.rules.fetch)
        return [
            sentences.KEPT,
            *([sentences.FETCHED.format(host, digits(1e3 * fetch))] if host else []),
        ]

    def parts(self) -> Iterator[Part]:
        """Server and load, times with percentiles, rates and what was full."""
        copies = float(self.plan.dp)
        many = f" x {copies:g} copies" if copies > 1 else ""
        each = float(self.plan.tp * self.plan.ep)
        ranks = "" if self.ranks is None else self.ranks.words
        gpus = f"{each:g} {self.asked.system.name}{ranks}{many}"
        if self.pools:
            gpus = f"{self.pools} {self.asked.system.name}, prefill > decode"
        yield f"{self.asked.model.name} on {gpus}, {self.server.engine}: {self._load()}"
        yield f"Lengths: {self.lengths.words}."
        yield f"Server: {self.server.words}."
        yield self.trust.says
        yield ""
        if self._left_waiting:
            yield self._overload()
        heads = [Column("", left=True), *(Column(name, "ms") for name in names())]
        yield Table(heads, list(self._times()))
        yield ""
        yield Table(
            [Column("answer", left=True), Column("value"), Column("unit", left=True)],
            [[title, value, unit] for title, value, unit in self._answers()],
        )
        yield Notes(self.notes())

    def _overload(self) -> str:
        """That the queue grew for as long as requests came."""
        count = len(self.runs[0].prompt)
        come = self._mean(lambda run: (len(run.arrival) - 1) / np.ptp(run.arrival))
        return sentences.OVERLOADED.format(
            digits(come), digits(self.request_throughput), digits(self._left_waiting), count
        )

    def _load(self) -> str:
        """The requests, in words."""
        return self.load.words(len(self.runs[0].prompt), self.lengths.trace)

    def _times(self) -> Iterator[list[str]]:
        """Rows of times; below each what was measured, and by how much it is missed."""
        mark = self.trust.mark
        for name, title in TIMES.items():
            times = self.times[name]
            cells = [mark + times.with_error(level) for level in names()]
            yield [title, *cells]
            if name in self.measured:
                real = self.measured[name].values
                off = [times.values[level] / real[level] - 1.0 for level in names()]
                yield ["  measured", *(digits(1e3 * real[level]) for level in names())]
                yield ["  error", *(f"{100.0 * x:+.1f} %" for x in off)]

    def _answers(self) -> Iterator[tuple[str, str, str]]:
        mark = self.trust.mark
        yield "throughput", mark + digits(self.throughput, 4), "output tok/s"
        yield "", mark + digits(self.request_throughput, 4), "requests/s"
        if self.goodput is not None:
            limits = " and ".join(f"{k.upper()} {1e3 * x:g} ms" for k, x in self.limits.items())
            yield "goodput", mark + digits(self.goodput, 4), f"requests/s within {limits}"
        duration = self._mean(lambda run: run.duration)
        yield "duration of a run", mark + digits(duration, 4), "s"
        yield "in flight", mark + digits(self._mean(lambda run: run.in_flight)), "requests, mean"
        if self.lengths.caching:
            yield "prompts in the cache", digits(self._cached), "% of tokens"
        if self._has_cache:
            kept = self._mean(lambda run: run.time_mean("kept"))
            yield "kept in the cache", digits(100.0 * kept), "% of blocks on average"
        if self.drafts is not None:
            yield "tokens per pass", or_unknown(self._yields), "of a request that decodes"
        if self.ranks is not None:
            yield self.ranks.row(self.runs)
        yield "preemptions", digits(self._mean(lambda run: run.preemptions)), "in a run"
        yield "longest queue", digits(self._peak("queue")), "requests"
        yield "most running", digits(self._peak("running")), "requests"
        yield "fullest cache", digits(100.0 * self._peak("cache")), "%"
        if self.energy is not None:
            yield "energy of the GPUs", mark + digits(self.energy), "J per output token"

    def _figure(self) -> "Figure":
        """Of the first run: requests, cache and power over time, and the spread of times."""
        from infer_jax.plots.replay import plot_replay
        from infer_jax.plots.style import words

        where = f"{self.asked.model.name} on {self.asked.system.title}"
        title = words(f"{where}: {self._load()}, replayed")
        server = f"{NAMES[self.server.engine]}, TP{float(self.plan.tp):g}, {self.server.words}"
        said = f"Lengths: {self.lengths.words}; {server}."
        both = [run for run in (self.runs[0], self._real) if run is not None]
        times = {LABELS[name]: [run.of(name) for run in both] for name in MEASURED}
        limits = {LABELS[name]: limit for name, limit in self.limits.items()}
        caption = pictures.caption(self.asked, None, self.estimator, said)
        return plot_replay(both[0].series, times, limits=limits, title=title, caption=caption)

    def write(self, out: str | os.PathLike[str]) -> None:
        """Write every request to a .csv, or else the picture.

        Raises:
            InputError: a file that cannot be written.
        """
        if Path(out).suffix.lower() != ".csv":
            self.plot(out)
            return
        rows, text = self.rows(), io.StringIO()
        table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        with replacing(Path(out)) as partial:
            Path(partial).write_text(text.getvalue())
