"""How are files of fixed policies and of searches of FlexGen's authors evaluated?

Fixed policies by both published models, all rows in one call. ``code_*``: the cost model that the
authors released; ``a3_*``: Appendix A.3 of the paper with the released constants. Times are of one
layer in seconds, peaks in bytes. Searches by the released model: theirs stops at the first number
of batches that does not help; ours solves the whole grid and must find at least as much.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments._check import Answer, Recipe
from experiments._columns import Input, Output, at_least_zero, flag, positive
from experiments._offloading.measured import SHAPES as MODEL_SHAPES, opt, opt_model, t4
from infer_jax.errors import InputError
from infer_jax.estimators.offloading import Offload, Offloading
from infer_jax.estimators.offloading.model import PlacedJob
from infer_jax.estimators.offloading.published import ReleasedConstants, cpu_efficiency
from infer_jax.estimators.offloading.search import Blocks, search
from infer_jax.physics.memory.tiers import Moved, Placement
from infer_jax.specs import Architecture, Hardware, Workload

MODELS = {"code": Offloading.released(solve=False), "a3": Offloading.paper(solve=False)}
SHAPE = ("l", "h1", "h2", "nh", "s", "n", "gbs", "nb")
PLACES = ("wg", "wc", "wn", "cg", "cc", "cn", "hg", "hc", "hn")
PHASES = (("p", "prefill"), ("g", "decode"))
LINKS = {"ctog": "to_gpu", "gtoc": "to_cpu", "dtoc": "read", "ctod": "written"}


def _answers(answer: PlacedJob, samples: Any, time: Any) -> dict[str, Any]:
    """One row's numbers under the names of the file."""
    job, peaks = answer.job, answer.peaks._asdict()
    values = {"T": time, "throughput": samples * job.tokens / time}
    for short, phase in PHASES:
        terms = getattr(answer, phase)
        values |= {f"{name}{short}": getattr(terms, field) for name, field in LINKS.items()}
        values[f"comp{short}"] = terms.compute + terms.attend
        for memory in ("gpu", "cpu"):
            peak = peaks[f"{memory}_{phase}"]
            values |= {
                f"{memory}_home_{short}": peak.home,
                f"{memory}_w_{short}": peak.work + peak.largest,
                f"{memory}_peak_{short}": peak.need,
            }
        values[f"inter_{short}"] = peaks[f"gpu_{phase}"].largest
    values |= {"Tpre": answer.prefill_time, "Tgen": answer.decode_time}
    return values | {"nvme_peak": peaks["disk"].need}


def _row(numbers: dict[str, Any]) -> dict[str, Any]:
    """Both models of one policy."""
    arch = opt(*(numbers[name] for name in SHAPE[:4]))
    work = Workload(isl=numbers["s"], osl=numbers["n"], prefix=numbers["zero"], batch=numbers["nb"])
    plan = Offload.of().replace(
        gpu_batch=numbers["gbs"], batches=numbers["nb"], compress_weights=numbers["compress_w"]
    )
    tiers = [[numbers[kind + tier] / 100.0 for kind in "wch"] for tier in "gcn"]
    at = Placement(*(Moved(*tier) for tier in tiers))
    values = {}
    for prefix, model in MODELS.items():
        job = model.job(arch, t4(), work, plan)
        answer = model.answer(job, at)
        prefills, decodes = model.weights(job)
        time = prefills * answer.prefill_time + decodes * answer.decode_time
        answers = _answers(answer, job.block, time)
        assert isinstance(model.rates, ReleasedConstants)
        answers["cpu_eff"] = cpu_efficiency(model.rates, job)
        values |= {f"{prefix}_{name}": x for name, x in answers.items()}
    return values


_rows = jax.jit(jax.vmap(_row))
NUMBERS = (*SHAPE, "compress_w", *PLACES, "zero")
with jax.enable_x64(True):  # the columns that a file may ask for
    COLUMNS = jax.eval_shape(_row, dict.fromkeys(NUMBERS, np.ones(())))


def _evaluate(key: tuple[()], rows: list[dict[str, Any]]) -> list[Answer]:
    """Every row's answer; the released model refuses hidden states on disk."""
    names = [*SHAPE, "compress_w", *(f"{p}_pct" for p in PLACES)]
    numbers = {
        name.removesuffix("_pct"): np.array([float(row[name]) for row in rows]) for name in names
    }
    numbers["zero"] = np.zeros(len(rows))
    for i, row in enumerate(rows):
        for kind in ("w", "c", "h"):
            triple = [row[f"{kind}{tier}_pct"] for tier in "gcn"]
            if abs(sum(triple) - 100.0) > 1e-6:
                where = f"row {i + 1} of the policies, {kind}g_pct + {kind}c_pct + {kind}n_pct"
                raise InputError(where, "", f"{sum(triple):g}", "percentages that sum to 100")
    with jax.enable_x64(True):
        result = {name: np.asarray(x) for name, x in _rows(numbers).items()}
    return [Answer({name: float(x[i]) for name, x in result.items()}) for i in range(len(rows))]


RECIPE = Recipe(
    source="FlexGen (arXiv 2303.06865): the released cost model and Appendix A.3 in float64",
    inputs={
        **{name: Input(positive) for name in SHAPE},
        "compress_w": Input(flag, absent=False),
        **{f"{name}_pct": Input(at_least_zero) for name in PLACES},
    },
    outputs={name: Output() for name in COLUMNS},
    evaluate=_evaluate,
)


class Task(NamedTuple):
    """What is searched: the arguments of ``search``."""

    model: Offloading
    arch: Architecture
    hardware: Hardware
    work: Workload
    plan: Offload

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Task":
        """The task of a row of a file of searches.

        Raises:
            InputError: a model that is not OPT's.
        """
        if row["model"] not in MODEL_SHAPES:
            raise InputError("searches", "model", row["model"], ", ".join(MODEL_SHAPES))
        return cls(
            Offloading.released().with_(usable=row["alpha"]),
            opt_model(row["model"]),
            t4(row["gmem_GiB"], row["cmem_GiB"], row["nmem_GiB"]),
            Workload.of(isl=row["s"], osl=row["n"]),
            Offload.of(compress_weights=float(row["compress_w"])),
        )

    def searched(self) -> tuple[Blocks, int | None]:
        """The whole grid of blocks, and which has the most throughput."""
        with jax.enable_x64(True):
            grid = search(*self)
        return grid, grid.best()


def _searches(key: tuple[()], rows: list[dict[str, Any]]) -> Iterator[Answer]:
    """The most tokens/s of each row; 0 where nothing fits."""
    for row in rows:
        grid, best = Task.of(row).searched()
        yield Answer({"throughput": 0.0 if best is None else float(grid.throughput[best])})


SEARCHES = Recipe(
    source="FlexGen (arXiv 2303.06865): most tokens/s of the released model's searches",
    inputs={
        "model": Input(),
        "s": Input(positive),
        "n": Input(positive),
        "compress_w": Input(flag, absent=False),
        "alpha": Input(positive, absent=0.8),
        "gmem_GiB": Input(positive, absent=16.0),
        "cmem_GiB": Input(positive, absent=200.0),
        "nmem_GiB": Input(positive, absent=1500.0),
    },
    outputs={"throughput": Output(1e-6, least=True)},
    evaluate=_searches,
)
