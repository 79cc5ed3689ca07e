"""The launch commands of a plan as text, or why an engine has none."""

from collections.abc import Iterator, Mapping, Sequence

from infer_jax.launch import ENGINES, Launch, LaunchedService, launches, service
from infer_jax.planning import Choice
from infer_jax.results import Lines, Part
from infer_jax.specs import UNBOUNDED
from infer_jax.verbs import inputs
from infer_jax.verbs.inputs import Given
from infer_jax.verbs.plan_search import Plans, Question

NO_GPU = "the hardware is given as numbers: a profile says which GPUs it is of"


def service_of(choice: Choice, question: Question, plans: Plans) -> LaunchedService:
    """The servers of a plan of a search, with the sizes that they are started with."""
    search = plans.searches[choice.label]
    given = {x.side.name: x.given for x in search.systems}
    return servers(choice, question, list(given.values()), search.form)


def servers(
    choice: Choice, question: Question, given: Sequence[Given], form: str | None
) -> LaunchedService:
    """The servers of a plan; ``given``: its one or two systems; ``form``: the option of formats."""
    most = float(question.common.max_sequences)
    return service(
        question.config,
        given[0].model,
        [x.system for x in given],
        choice.degrees,
        choice.batch,
        (choice.isl, choice.osl),
        (form, question.kv_dtype),
        question.draft,
        most if most < UNBOUNDED else 0.0,
        longest=(question.requests.longest, question.requests.within),
        # with random arrivals more requests may be in flight than the mean number
        arriving=question.requirements.rate is not None,
    )


def plan_launches(choice: Choice, question: Question, plans: Plans) -> dict[str, Launch]:
    """The launch commands of a plan, by engine."""
    wanted = service_of(choice, question, plans)
    systems = [x.given.system for x in plans.systems_of(choice)]
    if not wanted.checkpoint.missing and any(map(inputs.as_numbers, systems)):
        wanted = wanted._replace(checkpoint=wanted.checkpoint._replace(missing=NO_GPU))
    return dict(zip(ENGINES, launches(wanted), strict=True))


def launch_parts(launched: Mapping[str, Launch], layout: str, engine: str) -> Iterator[Part]:
    """Commands for a plan's ``engine``, or why there are none and those of another engine."""
    own, able = launched[engine], _printed(launched, engine)
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
        where = f", {step.where}" if step.where else ""
        yield from ("", f"On {able.engine} {able.version}, {layout}{where}:")
        yield Lines("\n".join([*(f"# {comment}" for comment in able.comments), step.command]))
    for name, text in able.files.items():
        yield from ("", f"{name}:")
        yield Lines(text)


def launch_notes(launched: Mapping[str, Launch], engine: str) -> Sequence[str]:
    """Notes on the commands that ``launch_parts`` prints."""
    able = _printed(launched, engine)
    return ["No engine's command is printed: see --json."] if able is None else able.notes


def _printed(launched: Mapping[str, Launch], engine: str) -> Launch | None:
    """The launch on an engine, or else on the first that starts the plan."""
    return next((x for x in (launched[engine], *launched.values()) if x.steps), None)
