"""The commands that give a section or a point of a report alone."""

import shlex
from collections.abc import Mapping
from typing import SupportsFloat, cast

from infer_jax import planning
from infer_jax.planning import Choice
from infer_jax.specs import Workload

WIDE = 76  # letters of a command's line, which a page does not break
Words = Mapping[str, object]  # options that every command of a report has, by name


def command(verb: str, config: object, options: Words) -> str:
    r"""A command of this program, its lines no longer than a page shows.

    >>> command("estimate", "llama-3.1-8b", {"hardware": "h100_sxm", "tp": 2.0, "price": None})
    'infer-jax estimate llama-3.1-8b --hardware h100_sxm --tp 2'
    """
    lines = [shlex.join(("infer-jax", verb, str(config)))]
    for name, given in options.items():
        for value in given if isinstance(given, list | tuple) else (given,):
            if value is None:
                continue
            word = value if isinstance(value, str) else f"{float(cast(SupportsFloat, value)):.12g}"
            option = shlex.join((f"--{name}", word))
            if len(lines[-1]) + len(option) < WIDE:
                lines[-1] += f" {option}"
            else:
                lines.append(f"  {option}")
    return " \\\n".join(lines)


def of_plan(
    choice: Choice, words: Words, work: Workload, estimator: str, total: float | None
) -> str:
    """The command that answers one plan of a frontier; "" where no command can name its model.

    ``estimate`` where the plan is one instance with as many groups as experts' ranks, else the
    search that puts it first.
    """
    if not words:
        return ""
    pools = planning.pools_of(choice.degrees)
    one = pools[0]
    shared = {**words, "isl": work.isl, "osl": work.osl}
    shared |= {"prefix": work.prefix} if float(work.prefix) else {}
    config = shared.pop("config")
    if len(pools) == 1 and one["ep"] == one["attention_dp"]:
        del shared["total-gpus"]
        degrees = {"tp": one["tp"], "pp": one["pp"], "ep": one["ep"], "dp": one["replicas"]}
        more = {"batch": choice.batch, "estimator": estimator}
        return command("estimate", config, {**shared, **degrees, **more})
    limits = {"ttft": _above(choice.ttft), "tpot": _above(choice.tpot)}
    shared["total-gpus"] = total
    return command("plan", config, {**shared, "mode": choice.mode, **limits})


def _above(seconds: float) -> str:
    """A limit that a time just meets."""
    return f"{1e3 * seconds * 1.0005:.5g}ms"
