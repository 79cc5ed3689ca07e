"""How is a launch shown: commands to copy, and why an engine has none?"""

from collections.abc import Sequence

from infer_jax.cli import show
from infer_jax.cli.plan_search import Found, Question
from infer_jax.launch import ENGINES, Launch, launches, service
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
        longest=(question.requests.longest, question.requests.within),
    )
    return launches(plan)


def printed(started: Sequence[Launch], layout: str, engine: str) -> list[str]:
    """Print what starts a plan on its ``engine``, or why nothing does, and then another engine's.

    Returns the notes that belong to it.
    """
    own = dict(zip(ENGINES, started, strict=True))[engine]
    able = next((launch for launch in (own, *started) if launch.steps), None)
    reasons = [f"No {own.engine} command for {layout}: {reason}." for reason in own.missing]
    if reasons:
        show.say("", *reasons)
    if able is None:
        return ["No engine's command is printed: see --json."]
    if able is not own:
        show.say(
            f"What follows starts the same layout on another engine, {able.engine}: the times and "
            f"costs above are of {own.engine}, not of {able.engine} (--engine asks for its own)."
        )
    for step in able.steps:
        place = f", {step.where}" if step.where else ""
        show.say("", f"On {able.engine} {able.version}, {layout}{place}:")
        show.lines("\n".join([*(f"# {said}" for said in able.comments), step.command]))
    for name, text in able.files.items():
        show.say("", f"{name}:")
        show.lines(text)
    return [*able.notes]
