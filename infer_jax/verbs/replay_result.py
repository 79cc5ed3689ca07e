"""The result of ``replay``: times with their percentiles, the server over time, every request."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from infer_jax.catalog.files import write_text
from infer_jax.plots.replay import plot_replay
from infer_jax.plots.style import Figure
from infer_jax.replays.runs import STATISTICS
from infer_jax.results import Answers, Column, Fact, Notes, Rows, Section, option
from infer_jax.results.numbers import digits, or_unknown
from infer_jax.servers.runs import MEASURED, ReplayedRuns
from infer_jax.verbs import pictures
from infer_jax.verbs.limits import unlikely_times
from infer_jax.verbs.option import either

TITLES = {  # the times of a request
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "time between tokens",
    "latency": "latency",
}
COLUMNS = (
    Column("", "", "title", left=True),
    *(Column(name, "ms", name, left=False) for name in STATISTICS),
)


@dataclass(frozen=True, repr=False)
class ReplayResult(pictures.EstimatorResult, ReplayedRuns):
    """What a server did in one run or more: ``runs`` has every request, in seconds and tokens."""

    def sections(self) -> Iterator[Section]:
        """Server and load, times with percentiles, rates, what was full, and what was asked."""
        stream, server, cluster, run = self.stream, self.server, self.cluster, self.runs[0]
        requests = len(run.prompt)
        yield (
            f"{self.setup.model.name} on {cluster.words(self.setup.system.name)}, "
            f"{server.engine.name}: {stream.arrivals_in_words(requests)}"
        )
        yield f"Lengths: {stream.words}."
        yield f"Server: {server.words}."
        yield self.trust.says
        if self.left_waiting:
            rate = self.mean_of(lambda run: (len(run.arrival) - 1) / np.ptp(run.arrival))
            yield ""
            yield (
                f"Overloaded: {digits(rate)} requests/s come, {digits(self.request_throughput)} "
                f"are completed, and {digits(self.left_waiting)} of {requests} had no first token "
                "when the last one came. The queue grows without end: times are of this run, and "
                "longer in a longer one."
            )
        yield {
            **self.names,
            **cluster.fields(),
            "max_num_seqs": server.rules.slots,
            "max_num_batched_tokens": server.rules.budget,
            "block_size_tokens": server.rules.block,
            "kv_cache_size_tokens": server.tokens,
            **({"drafts": server.drafts.count} if server.drafts else {}),
            "trace": None if stream.trace is None else stream.trace.file,
            "concurrency": stream.concurrency,
            "request_rate_per_s": stream.rate,
            "prompts": requests,
            "warmup": int((~run.counted).sum()),
            "runs": len(self.runs),
            "isl_tokens": self.mean_of(lambda run: run.mean("prompt")),
            "osl_tokens": self.mean_of(lambda run: run.mean("output")),
            **({"prefix_tokens": stream.prefix, "prefixes": stream.prefixes}
               if stream.prefix else {}),
            **({"host_blocks": server.rules.host} if float(server.rules.host) else {}),
            **{f"{x}_ms": _in_ms(t.values) for x, t in self.times.items()},
            **{f"{x}_standard_error_ms": _in_ms(t.errors) for x, t in self.times.items()},
            **{f"measured_{x}_ms": _in_ms(t.values) for x, t in self.measured.items()},
            "limits": _in_ms({f"{name}_ms": limit for name, limit in self.limits.items()}),
            "overloaded": bool(self.left_waiting),
        }  # fmt: skip
        yield Rows("", list(self._time_rows()), COLUMNS)
        yield Answers(self._facts())
        yield Notes(self.notes())

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a request."""
        return [row for i, run in enumerate(self.runs) for row in run.rows(i)]

    def _time_rows(self) -> Iterator[dict[str, str]]:
        """Rows of times; below each what was measured, and by how much it is missed."""
        mark = self.trust.mark
        for name, title in TITLES.items():
            times = self.times[name]
            yield {"title": title, **{x: mark + times.with_error(x) for x in STATISTICS}}
            if name in self.measured:
                real = self.measured[name].values
                errors = {x: times.values[x] / real[x] - 1.0 for x in STATISTICS}
                yield {"title": "  measured", **{x: digits(1e3 * real[x]) for x in STATISTICS}}
                yield {"title": "  error", **{x: f"{100 * e:+.1f} %" for x, e in errors.items()}}

    def _facts(self) -> list[Fact]:
        """Rates, and what was full."""
        mean, peak, mark, goodput = self.mean_of, self.peak, self.trust.mark, self.goodput
        server, energy = self.server, self.energy
        limits = " and ".join(f"{k.upper()} {1e3 * x:g} ms" for k, x in self.limits.items())

        def rate(value: float) -> str:
            return mark + digits(value, 4)

        def estimate(value: float) -> str:
            return mark + digits(value)

        facts = [
            Fact("throughput_tokens_per_s", self.throughput, "throughput", "output tok/s", rate),
            Fact("requests_per_s", self.request_throughput, "completed", "requests/s", rate),
            Fact("goodput_requests_per_s", goodput, "goodput" if self.limits else "",
                 f"requests/s within {limits}", rate),
            Fact("duration_s", mean(lambda run: run.duration), "duration of a run", "s", rate),
            Fact("in_flight", mean(lambda run: run.in_flight), "in flight",
                 "requests, mean", estimate),
            Fact("cached_prompt_percent",
                 mean(lambda run: 100.0 * run.total("cached") / run.total("prompt")),
                 "prompts in the cache" if self.stream.caching else "", "% of tokens", digits),
        ]  # fmt: skip
        if self.has_cache:
            used, kept = (100 * mean(lambda run, x=x: run.time_mean(x)) for x in ("cache", "kept"))
            title, unit = "kept in the cache", "% of blocks on average"
            facts.append(Fact("cache_mean_percent", used))
            facts.append(Fact("cache_kept_mean_percent", kept, title, unit, digits))
        if server.drafts is not None:
            title, unit = "tokens per pass", "of a request that decodes"
            facts.append(Fact("tokens_per_pass", self.tokens_per_pass, title, unit, or_unknown))
        return [
            *facts,
            *self.cluster.routed(self.runs),
            Fact("preemptions", mean(lambda run: run.total("preempted")), "preemptions",
                 "in a run", digits),
            Fact("queue_peak", peak("queue"), "longest queue", "requests", digits),
            Fact("running_peak", peak("running"), "most running", "requests", digits),
            Fact("cache_peak_percent", 100.0 * peak("cache"), "fullest cache", "%", digits),
            Fact("energy_per_output_token_j", energy,
                 "" if energy is None else "energy of the GPUs", "J per output token", estimate),
        ]  # fmt: skip

    def notes(self) -> list[str]:
        """What bears on these numbers; how it is replayed is in docs/replay.md."""
        stream, server, cluster, runs = self.stream, self.server, self.cluster, self.runs
        drafts, flight = server.drafts, either(stream.concurrency, 0.0)
        dropped = stream.trace and stream.trace.dropped
        warm = int((~runs[0].counted).sum())
        routed = f"requests are routed by {cluster.router} ({option('router')})"
        notes = [
            (True, "The estimator's errors are of its own means, not of replays (docs/replay.md)."),
            (True, f"Times hold {digits(1e3 * server.front)} ms of network and tokeniser."),
            (drafts, "The time between tokens is that between passes."),
            *((True, note) for note in (drafts.notes if drafts else ())),
            (cluster.ranks > 1, f"{cluster.ranks} attention ranks pass together; {routed}."),
            (cluster.router and cluster.ranks == 1, f"Copies share nothing: {routed}."),
            *self._notes_on_cache(),
            (dropped, f"{dropped} requests of the trace that failed are left out."),
            (flight and stream.rate is not None, f"Requests beyond {flight:g} in flight are held "
             "back, and their times begin when they are sent."),
            (stream.rate is None and warm < flight < len(runs[0].prompt), f"The first {flight:g} "
             f"are sent all at once; {option('warmup', int(flight))} leaves them out."),
            (cluster.pools, "A prompt's last token is computed again where it is decoded."),
            (cluster.dealt, "Requests are dealt to the copies in turn."),
            (len(runs) > 1, f"Means over {len(runs)} runs, after ± their standard errors."),
            (len(runs) == 1 and self.random, f"After ±: standard errors; see {option('seeds')}."),
            (any(x.preempted.any() for x in runs), "Times between tokens hold no preemptions."),
        ]  # fmt: skip
        own = (note for note in self.setup.notes if "USD/h" not in note)
        return [*unlikely_times(self.limits), *(text for holds, text in notes if holds), *own]

    def _notes_on_cache(self) -> list[tuple[object, str]]:
        """How prompts are found in the cache and in host memory, each with whether it is so."""
        stream, rules = self.stream, self.server.rules
        uncached, looked_up = option("no_enable_prefix_caching"), stream.caching and self.has_cache
        return [
            (not stream.caching and not stream.alike, "No prefix is cached."),
            (not stream.caching and stream.alike, f"Prompts begin alike, as with {uncached}."),
            (stream.caching and not looked_up, "Prompts begin with what earlier ones left in the "
             f"cache, in order of arrival; {uncached}: none does."),
            (looked_up, f"Prompts are looked up in the cache; {uncached}: none is."),
            (looked_up and float(rules.host), f"Host memory holds {float(rules.host):,.0f} blocks, "
             f"of which each takes {digits(1e3 * float(rules.fetch))} ms back."),
        ]  # fmt: skip

    def _figure(self) -> Figure:
        """Of the first run: requests, cache and power over time, and the spread of times."""
        where = f"{self.setup.model.name} on {self.setup.system.title}"
        load = self.stream.arrivals_in_words(len(self.runs[0].prompt))
        tp = f"TP{float(self.cluster.plan.tp):g}"
        server = f"{self.server.engine.title}, {tp}, {self.server.words}"
        both = [run for run in (self.runs[0], self.recorded) if run is not None]
        times = {x: [run.counted_times(name) for run in both] for name, x in MEASURED.items()}
        text = f"Lengths: {self.stream.words}; {server}."
        return plot_replay(
            [x._asdict() for x in both[0].series],
            times,
            limits={MEASURED[name]: limit for name, limit in self.limits.items()},
            title=f"{where}: {load}, replayed",
            caption=self.caption(None, text),
        )

    def write(self, out: str | os.PathLike[str]) -> None:
        """Write every request to a .csv, or else the picture.

        Raises:
            InputError: a file that cannot be written.
        """
        if Path(out).suffix.lower() != ".csv":
            self.draw(out)
            return
        rows, text = self.rows(), io.StringIO()
        table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_text(out, text.getvalue())


def _in_ms(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: 1e3 * x for name, x in seconds.items()}
