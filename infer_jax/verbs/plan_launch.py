"""The launch commands of a plan as text, or why an engine has none."""

from collections.abc import Iterator, Sequence

from infer_jax.launch import ENGINES, Launch, LaunchedService, launches, service
from infer_jax.planning import Choice
from infer_jax.results import Lines, Part
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import inputs
from infer_jax.verbs.plan_search import Plans, Question

NO_GPU = "the hardware is given as numbers: a profile says which GPUs it is of"


def service_of(choice: Choice, question: Question, plans: Plans) -> LaunchedService:
    """The servers of a plan, with the sizes that they are started with."""
    systems = [plans.systems[name] for name in choice.system.split(" > ")]
    most = float(question.tried.common.max_sequences)
    return service(
        question.target.config,
        plans.model,
        systems,
        choice.degrees,
        choice.batch,
        (choice.isl, choice.osl),
        (plans.formats[choice.formats], question.target.kv_dtype),
        question.draft,
        most if most < UNBOUNDED else 0.0,
        longest=(question.requests.longest, question.requests.within),
        # with random arrivals more requests may be in flight than the mean number
        arriving=question.asked.rate is not None,
    )


def started(choice: Choice, question: Question, plans: Plans) -> dict[str, Launch]:
    """The launch commands of a plan, by engine."""
    systems = [plans.systems[name] for name in choice.system.split(" > ")]
    wanted = service_of(choice, question, plans)
    if not wanted.checkpoint.missing and any(map(inputs.as_numbers, systems)):
        wanted = wanted._replace(checkpoint=wanted.checkpoint._replace(missing=NO_GPU))
    return dict(zip(ENGINES, launches(wanted), strict=True))


def parts(launched: dict[str, Launch], layout: str, engine: str) -> Iterator[Part]:
    """Commands for a plan's ``engine``, or why there are none and those of another engine."""
    own, able = launched[engine], _able(launched, engine)
    reasons = [f"No {own.engine} command for {layout}: {reason}." for reason in own.missing]
    if reasons:
        yield from ("", *reasons)
    if able is None:
        return
    if able is not own:
        yield (
            f"What follows starts the same layout on another engine, {able.engine}: the times and "
            f"costs above are of {own.engine}, not of {able.engine} (--engine asks for its own)."
        )
    for step in able.steps:
        place = f", {step.where}" if step.where else ""
        yield from ("", f"On {able.engine} {able.version}, {layout}{place}:")
        yield Lines("\n".join([*(f"# {comment}" for comment in able.comments), step.command]))
    for name, text in able.files.items():
        yield from ("", f"{name}:")
        yield Lines(text)


def notes(launched: dict[str, Launch], engine: str) -> Sequence[str]:
    """Notes on the commands that ``parts`` prints."""
    able = _able(launched, engine)
    return ["No engine's command is printed: see --json."] if able is None else able.notes


def _able(launched: dict[str, Launch], engine: str) -> Launch | None:
    """The launch on an engine, or else on the first that starts the plan."""
    return next((one for one in (launched[engine], *launched.values()) if one.steps), None)


def engine_of(plans: Plans, choice: Choice) -> str:
    """The engine that a plan's numbers are of."""
    return plans.trusted[choice.system.partition(" > ")[0]].engine or "vllm"
