"""Reads a verb's model, system and options, and notes the assumptions."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from infer_jax import engines, estimators, legal
from infer_jax.catalog import Model, System, load_model, load_system
from infer_jax.catalog.names import chip_of
from infer_jax.errors import InputError
from infer_jax.estimators import VARIANTS, Estimator, Speculative, Trust, make
from infer_jax.estimators.serving import Serving
from infer_jax.estimators.serving.plan import deployment
from infer_jax.results import option
from infer_jax.results.problems import by_command, forbid, refuse
from infer_jax.specs import Architecture, Experts, Hardware, Plan, Workload
from infer_jax.specs.fields import fresh
from infer_jax.verbs.changes import HEADS, Changes
from infer_jax.verbs.options import HardwareLike as HardwareLike, ModelLike as ModelLike, RentsLike

BEST = "serving"  # the estimator of a given layout, where none is asked for
SEARCHING = "economics"  # the estimator that searches the layout of a number of GPUs
AS_CALIBRATED = "{} changes nothing: calibrated runs are of the software that they ran on."


@dataclass(frozen=True)
class Setup:
    """A model, a system, and its hardware with the changes of the options.

    ``quant``: the option of the model's formats.
    """

    model: Model
    system: System
    hardware: Hardware
    price_source: str
    changes: Changes
    engine_version: str | None = None
    rent_class: str = ""
    quant: str | None = None

    def software(self, engine: str) -> tuple[float, str]:
        """Age of the software that is asked for, months, and words; InputError if unknown."""
        try:
            return engines.ENGINES[engine].software(self.engine_version or "")
        except InputError as error:
            raise refuse("engine_version", error.value, error.allowed) from None

    @property
    def notes(self) -> list[str]:
        """Assumptions from the files: model, formats, filled rates, price."""
        system = self.system
        return [
            f"Formats: {self.model.quantisation}.",
            *(f"Model: {note}." for note in self.model.notes),
            *(f"{system.name}: {note}." for note in system.filled),
            f"{system.name}: {float(self.hardware.price):g} USD/h per GPU, {self.price_source}.",
            *(f"Changed by {option('set')}: {text}." for text in self.changes.texts),
        ]

    @property
    def names(self) -> dict[str, object]:
        """Names of the model and the system, for JSON."""
        return {
            "model": self.model.name,
            "formats": self.model.quantisation,
            "hardware": self.system.name,
            "price_per_hour_usd": self.hardware.price,
            "price_source": self.price_source,
            **({"set": list(self.changes.texts)} if self.changes.texts else {}),
            **({"engine_version": self.engine_version} if self.engine_version else {}),
        }


def setup(
    config: ModelLike,
    hardware: HardwareLike,
    quant: str | None,
    kv_dtype: str | None,
    price: RentsLike,
    set: str | Sequence[str] | None = None,  # the option's name
    engine_version: str | None = None,
    heads: Sequence[str] = HEADS,
) -> Setup:
    """Load model and system, set the price, and apply the changes of ``set``.

    Raises:
        InputError: an unknown or unreadable model or system, an unknown format, a change of what
            is not there.
    """
    changes = Changes() if set is None else Changes.of(set, heads)
    system, model = system_of(hardware), model_of(config, quant, kv_dtype)
    machine, source = system.hardware, system.sources.get("price", "the profile")
    if isinstance(price, list | dict):  # as ``@verb`` read it
        price = rents_of(price, [system]).get(system.name)
    if price is not None:
        machine, source = machine.with_(price=price), f"given by {option('price')}"
    if changes.texts:
        parts = changes.changed(arch=model.architecture, hardware=machine)
        for block in parts.arch.blocks:
            if isinstance(block.feedforward, Experts):
                Experts.of(**vars(block.feedforward))  # which checks its numbers together
        model, machine = replace(model, architecture=parts.arch), parts.hardware
        source = f"given by {option('set')}" if "hardware.price" in changes.numbers else source
    own = source == system.sources.get("price", "the profile")
    rent_class = system.rent_class if own else ""
    return Setup(model, system, machine, source, changes, engine_version, rent_class, quant)


def mixed_rents(systems: Sequence[Setup]) -> list[str]:
    """That the rents of systems are of different classes of providers, where they are."""
    classes = dict[str, list[str]]()
    for one in systems:
        if one.rent_class:
            classes.setdefault(one.rent_class, []).append(one.system.name)
    if len(classes) < 2:
        return []
    parts = "; ".join(f"of {kind}: {', '.join(names)}" for kind, names in classes.items())
    name = [*classes.values()][-1][0]
    yours = option("price", f"{name}=...")
    return [f"Rents are of different classes, {parts}: {yours} sets one that you would pay."]


def rents_of(price: RentsLike, systems: Sequence[System], field: str = "price") -> dict[str, float]:
    """USD per hour of a chip of each system whose rent is given; ``price`` as ``@verb`` read it.

    ``field``: the option, of rents or of other numbers of systems.

    Raises:
        InputError: a rent of none of the systems, or a second one of the same.
    """
    read = cast(list[dict[str, float]], price if isinstance(price, list) else [price or {}])
    given, names = dict[str, float](), [system.name for system in systems]
    for name, rent in (pair for rents in read for pair in rents.items()):
        known = name if name in ("", *names) else chip_of(name, names)
        if known is None:
            raise refuse(field, f"{name}={rent:g}", f"of one of {', '.join(names)}")
        if known in given:
            free, bare = [n for n in names if n not in given], [x[""] for x in read if "" in x]
            pairs = [(known, rent)] if known else zip(free, bare, strict=False)
            each = " and ".join(option(field, f"{name}={x:g}") for name, x in pairs)
            raise refuse(field, rent, f"one for all systems, or one of each, such as {each}")
        given[known] = rent
    every = given.pop("", None)
    return given if every is None else {**dict.fromkeys(names, every), **given}


def model_of(config: ModelLike, quant: str | None, kv_dtype: str | None) -> Model:
    """The model that is meant, in these formats.

    Raises:
        InputError: an unknown or unreadable model, an unknown format, formats for a model whose
            numbers are given.
    """
    if isinstance(config, Architecture):
        config = Model("architecture", config, "", "given as numbers", "as given")
    if not isinstance(config, Model):
        return named_model("CONFIG" if by_command() else "config", str(config), quant, kv_dtype)
    allowed = "with a model by name: one given as numbers has its own"
    forbid(allowed, quant=quant, kv_dtype=kv_dtype)
    return replace(config, architecture=fresh(config.architecture))


def named_model(
    name_of: str, name: str, quant: str | None = None, kv_dtype: str | None = None
) -> Model:
    """The model that an option names, in these formats.

    Raises:
        InputError: an unknown or unreadable model, an unknown format.
    """
    try:
        return load_model(name, quant=quant, kv_dtype=kv_dtype)
    except InputError as error:
        if error.where != "load_model":  # of a file
            raise
        wrong = name_of if error.field == "model" else error.field
        raise refuse(wrong, error.value, error.allowed) from None


def system_of(hardware: HardwareLike) -> System:
    """The system that is meant.

    Raises:
        InputError: an unknown or unreadable profile.
    """
    if isinstance(hardware, Hardware):
        return System("hardware", "hardware", "", fresh(hardware), {}, {}, (), Path(), "")
    if not isinstance(hardware, System | str | os.PathLike):
        raise refuse("hardware", hardware, "a system by name or file, a System or a Hardware")
    if isinstance(hardware, System):
        return replace(hardware, hardware=fresh(hardware.hardware))
    return named_system("hardware", str(hardware))


def as_list(hardware: HardwareLike | Sequence[HardwareLike]) -> list[HardwareLike]:
    """One system or several."""
    single = isinstance(hardware, str | os.PathLike | System | Hardware)
    return [hardware] if single else [*hardware]


def systems_of(
    hardware: HardwareLike | Sequence[HardwareLike], decoding: HardwareLike | None
) -> tuple[list[System], System | None]:
    """The systems to compare, each once and under a name of its own, and the one that decodes."""
    several, known, named = as_list(hardware), dict[object, System](), list[System]()
    if not several:
        raise refuse("hardware", "missing", "one system or more")
    for like in several if decoding is None else [*several, decoding]:
        key = str(like) if isinstance(like, str | os.PathLike) else id(like)
        if key not in known:
            system = system_of(like)
            alike = sum(one.name.partition(" (")[0] == system.name for one in known.values())
            name = f"{system.name} ({alike + 1})" if alike else system.name
            known[key] = replace(system, name=name)
        named.append(known[key])
    systems = {system.name: system for system in named[: len(several)]}
    return list(systems.values()), None if decoding is None else named[-1]


def named_system(name_of: str, name: str) -> System:
    """The system that an option names.

    Raises:
        InputError: an unknown or unreadable profile.
    """
    try:
        if name.endswith(".toml"):
            from infer_jax.silicon.chips import describes_silicon, load_silicon

            if describes_silicon(name):
                return load_silicon(name)
        return load_system(name)
    except InputError as error:
        if error.where != "hardware profile":  # of a file
            raise
        from infer_jax.silicon.chips import known_chips, load_silicon

        if name in known_chips():  # without a profile
            return load_silicon(name)
        several = f"one system; where several are compared, {option(name_of)} is given for each"
        raise refuse(name_of, error.value, several if "," in name else error.allowed) from None


def workload(isl: float, osl: float, prefix: float, batch: float = 1.0) -> Workload:
    """Requests of one shape.

    Raises:
        InputError: more cached tokens than prompt tokens.
    """
    if prefix > isl:
        raise refuse("prefix", prefix, f"at most {option('isl')}, {isl:.12g} tokens")
    return Workload.of(isl=isl, osl=osl, prefix=prefix, batch=batch)


def check_context(model: Model, work: Workload) -> None:
    """Check that prompt and output are within the model's longest context, if that is known.

    Raises:
        InputError: they are longer; a server of the model would refuse such requests.
    """
    rule = legal.context(model.architecture, work)
    if not rule.holds:
        raise refuse("isl", float(work.isl), rule.allowed() + context_hint())


def context_hint() -> str:
    """How a longest context is changed."""
    return f"; {option('set')} arch.max_positions=N for a server that takes more"


def estimator_of_engine(estimator: str | None, engine: str | None) -> str | None:
    """The name of the estimator that options mean, of an engine's servers where one is given.

    Raises:
        InputError: both are given.
    """
    if engine is None:
        return estimator
    if estimator not in (None, BEST, f"{BEST}.{engine}"):
        raise refuse("engine", engine, f"without {option('estimator')}, or with {BEST}")
    return f"{BEST}.{engine}"


def estimator(name: str, setup: Setup) -> Estimator:
    """The estimator of that name with the system's coefficients, changed as ``set`` says.

    Raises:
        InputError: no such estimator, or one that cannot price a single pass.
    """
    try:
        fitted = make(name, setup.system.coefficients)
    except InputError as error:
        if name in VARIANTS:
            raise
        raise refuse("estimator", name, error.allowed) from None
    if not fitted.prices_passes:
        allowed = ", ".join(n for n in VARIANTS if VARIANTS[n].make().prices_passes)
        raise refuse("estimator", name, f"one that prices a single pass: {allowed}")
    if setup.engine_version is not None:
        if not isinstance(fitted, Serving):
            with_servers = f"with {option('estimator', 'serving')}"
            raise refuse("engine_version", setup.engine_version, with_servers)
        age, _ = setup.software(fitted.engine_name)
        fitted = fitted if setup.system.bands() else fitted.with_(software_age=age)
    return setup.changes.changed(estimator=fitted).estimator if setup.changes.texts else fitted


def serving(name: str, setup: Setup) -> Serving:
    """The serving estimator of that name, or one of its variants: the only one that plans use.

    Raises:
        InputError: no such estimator, or none of the variants of ``serving``.
    """
    server = estimator(name, setup)
    if not server.batches:
        raise refuse("estimator", name, "serving, or one of its variants: serving.vllm")
    return cast(Serving, server)


def trust(name: str, estimator: Estimator, setup: Setup, plan: Plan | None = None) -> Trust:
    """Known errors of the estimator of that name for this model and system, and one plan."""
    altered = any(path.startswith(("hardware.", "estimator.")) for path in setup.changes.numbers)
    own = bool(setup.system.bands()) and estimator.batches  # else no layout makes a difference
    layout = deployment(plan).label if plan is not None and own else ""
    model = setup.model
    sizes = [b.feedforward.weights.bytes for b in model.architecture.blocks if b.feedforward]
    bits = int(8.0 * float(sizes[-1])) if sizes else 0
    asked = model.name, altered, model.quantisation, layout, bits
    known = estimators.trust(name, estimator, setup.system, *asked)
    if setup.engine_version is None:
        return known
    _, says = setup.software(known.engine or "")
    says = AS_CALIBRATED.format(option("engine_version")) if known.calibrated else says
    return known._replace(says=f"{known.says} {says}")


def notes_of_draft(model: Model) -> list[str]:
    """The formats and assumptions of a model that drafts."""
    return [f"Draft formats: {model.quantisation}.", *(f"Draft: {x}." for x in model.notes)]


def speculative(
    target: Estimator, draft: str | None, acceptance: float | None, *, paper: bool
) -> tuple[Estimator, list[str]]:
    """``target`` with a draft model if one is given, and notes on it.

    Raises:
        InputError: a draft without an acceptance, or the other way round; an unknown draft.
    """
    if draft is None and acceptance is None:
        return target, []
    if draft is None or acceptance is None:
        missing = "draft" if draft is None else "acceptance"
        both = f"{option('draft')} and {option('acceptance')}"
        raise refuse(missing, "missing", f"{both} together, or neither")
    small = named_model("draft", draft)
    wrap = Speculative.economics if paper else Speculative.bonus
    rule = "as the economics paper counts" if paper else "one token more than is accepted"
    said = [
        f"Draft: {small.name}, {acceptance:g} of drafts accepted; 0 to 5 drafts a pass, whichever "
        f"is fastest; a pass yields {rule}.",
        *notes_of_draft(small),
    ]
    return wrap(target, small.architecture, acceptance), said
