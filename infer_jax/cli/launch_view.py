"""How is a launch shown: commands to copy, and why an engine has none?"""

from collections.abc import Sequence

from infer_jax.cli import show
from infer_jax.cli.plan_search import Found, Question
from infer_jax.launch import Launch, launches, service
from infer_jax.planning import Choice


def of_choice(
    choice: Choice, question: Question, found: Found, draft: str | None, most: float | None
) -> list[Launch]:
    """What starts a plan on each engine; ``draft``, ``most``: see ``launch.service``."""
    plan = service(
        question.config,
        found.model,
        [found.systems[name] for name in choice.system.split(" > ")],
        choice.degrees,
        choice.batch,
        (choice.isl, choice.osl),
        (found.formats[choice.formats], question.kv_dtype),
        draft,
        most,
        spread=question.requests.lengths != "equal",
    )
    return launches(plan)


def printed(started: Sequence[Launch], layout: str, engine: str | None) -> list[str]:
    """Print what starts a plan: on the engine asked for, vLLM where none is, else the first able.

    Returns the notes that belong to it.
    """
    names = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", None: "vLLM"}
    wanted = next(launch for launch in started if launch.engine == names[engine])
    able = [launch for launch in (wanted, *started) if launch.steps]
    why = [f"No {wanted.engine} command: {reason}." for reason in wanted.missing]
    if not able:
        return [*why, "No engine's command is printed: see --json."]
    for step in able[0].steps:
        place = f", {step.where}" if step.where else ""
        show.say("", f"On {able[0].engine} {able[0].version}, {layout}{place}:")
        show.lines(step.command)
    for name, text in able[0].files.items():
        show.say("", f"{name}:")
        show.lines(text)
    return [*why, *able[0].notes]
