"""What the rest of the package asks an engine for."""

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from infer_jax.catalog.published.tables import tables
from infer_jax.engines.launches import (
    Instance,
    Launch,
    LaunchedService,
    Packages,
    Shell,
    Step,
    command_line,
)
from infer_jax.errors import InputError
from infer_jax.results.numbers import quantity

if TYPE_CHECKING:
    from infer_jax.replays import Rules

BUDGET = 8192.0  # tokens of a pass where neither the plan nor the engine says
NEWEST = "2026-06"  # month of the newest rows that the serving estimator was fitted to
MONTH = re.compile(r"(\d{4}-(?:0[1-9]|1[0-2]))(?:-(?:0[1-9]|[12]\d|3[01]))?")
RELEASE = re.compile(
    r"(\d{1,9}(?:\.\d{1,9}){1,3})(?:[.-]?(rc|dev|a|b|post)(\d{0,9}))?(?:[.+-]\S*)?"
)
Key = tuple[list[int], int, int]


class ServingEngine:
    """One serving engine: its scheduler, and the commands that start it.

    Attributes:
        name: in options, profiles and coefficients; ``title`` in sentences.
        code: the number that stands for it in fits and sweeps: that of a new engine is the next.
        like: the engine whose fitted coefficients it has until servers of it are measured.
        words: what a framework's name has in files of measurements.
        version: of the options in its commands; ``source`` of these.
        scheduling: its own values of the scheduler's coefficients (``estimators.serving.Engine``).
        block: tokens of a block of its cache.
        router: by which it sends requests to attention ranks.
        settings: which of ``chunked`` and ``overlap`` its rules have.
        host_memory: whether blocks that leave the cache may go to the host.
        pools: whether the hand-over between two pools is replayed.
        mixed_graphs: whether passes with prompts are launched as CUDA graphs, as those that decode.
        casts: the formats that it casts 16-bit weights to while it loads them, and its names.
        caches: the same of the formats of its cache.
        address: the option that says where the first of several machines is.
        others: what the commands of the other machines add.
        under_slurm: whether Slurm starts an instance over several machines.
        packages: what it is installed from, its router, and what else starts it.
    """

    name: str
    title: str
    code: int
    like = "vllm"
    words: tuple[str, ...]
    version: str
    source: str
    scheduling: ClassVar[Mapping[str, float]] = {}
    block: float
    router: str
    settings: tuple[str, ...] = ("chunked", "overlap")
    host_memory = True
    pools = False
    mixed_graphs = False
    casts: ClassVar[Mapping[str, str]] = {}
    caches: ClassVar[Mapping[str, str]] = {}
    address: Sequence[object] = ()
    others: Sequence[object] = ()
    under_slurm = False
    packages = Packages()

    @abstractmethod
    def rules(self, tokens: float, block: float, *, caching: bool, **sizes) -> "Rules":
        """Of a replayed server with a cache of ``tokens`` tokens in blocks of ``block``."""

    @abstractmethod
    def program(self, service: LaunchedService) -> str:
        """What a command begins with."""

    @abstractmethod
    def flags(self, instance: Instance, service: LaunchedService) -> list[object]:
        """The options of a command, and their values."""

    @abstractmethod
    def obstacles_of(self, instance: Instance, service: LaunchedService) -> Iterator[str]:
        """Why the engine cannot start an instance that others might."""

    def together(self, instance: Instance, service: LaunchedService) -> list[object]:
        """The option by which one command starts all copies of an instance, if there is one."""
        return []

    def fits(self, instance: Instance, machines: int) -> bool:
        """Whether the engine spreads an instance over so many equal machines."""
        return True

    def pool_notes(self) -> str:
        """What two pools need beside their servers."""
        return ""

    def address_options(
        self, instance: Instance, number: int, host: str
    ) -> tuple[dict[str, str], list[object]]:
        """Variables and options by which others reach server ``number`` of the machine ``host``."""
        return {}, ["--host", "0.0.0.0"]

    def machines(self, instance: Instance) -> int:
        """Machines of one instance: the fewest equal parts that fit; 0 where there are none."""
        gpus = instance.gpus
        counts = (n for n in range(-(-gpus // instance.machine), gpus + 1) if gpus % n == 0)
        return next((n for n in counts if n == 1 or self.fits(instance, n)), 0)

    def obstacles(self, service: LaunchedService) -> list[str]:
        """Why the engine cannot start a plan; nothing where it can."""
        reasons = [*_obstacles(service), *self.format_obstacles(service)]
        own = self.packages
        if any(x.role for x in service.instances) and not (own.pool_option or own.pool_command):
            reasons.append(f"no router before two pools of {self.title} is known")
        for instance in service.instances:
            reasons += self.obstacles_of(instance, service)
            if not self.machines(instance):
                machines = f"machines of {instance.machine}"
                reasons.append(f"{instance.gpus} GPUs do not divide over {machines}")
        return list(dict.fromkeys(reasons))

    def format_obstacles(self, service: LaunchedService) -> Iterator[str]:
        """Weight formats that the engine does not cast to, and cache formats that it lacks."""
        load = service.checkpoint
        if load.cast and load.cast not in self.casts:
            yield (
                f"{self.title} does not cast to {load.cast} while it loads, and no repository of "
                f"{load.repository} in {load.cast} is known here"
            )
        if load.cache and load.cache not in self.caches:
            yield f"{self.title} keeps no KV cache in {load.cache}"

    def software(self, version: str) -> tuple[float, str]:
        """Age of its software in months before ``NEWEST``, 0 if newer, and that in words.

        ``version``: a release (``0.12.0``), month (``2026-01``) or day. A release that is not
        listed, such as a candidate, is of the month of the newest below it.

        Raises:
            InputError: none of them, older than the first release that is listed, or an engine of
                which none is.
        """
        text, name, rows = version.strip().removeprefix("v"), self.title, _releases(self.name)
        if not rows:
            allowed = f"none: releases of {self.title} are not listed"
            raise InputError("engine", "version", version, allowed)
        (_, start, first), (newest, _, last) = rows[0], rows[-1]
        day, key = MONTH.fullmatch(text), _key(text)
        month = day[1] if day else None
        if key is not None:
            name += f" {text}"
            month = next((month for k, month, _ in reversed(rows) if k <= key), None)
        if month is None or month < start:
            allowed = (
                f"a release of {self.title} from {first} to {last}, or a month from {start} on"
            )
            raise InputError("engine", "version", version, allowed)
        beyond = key is not None and key > newest
        of = f", newer than the releases known (to {last})," if beyond else f" of {month}"
        age = 0.0 if beyond else max(months_before(month), 0.0)
        older = f", {quantity(age, 'month')} older than" if age > 0 else " as"
        says = f"Priced for {name}{of}{older} the newest software that was measured, of {NEWEST}"
        rules = f"scheduler and commands do not change with it: {self.title} {self.version}"
        return age, f"{says} ({rules})."

    def launch(self, service: LaunchedService) -> Launch:
        """The commands that start a plan, or why there are none."""
        launch = Launch(self.title, self.version, self.source)
        if reasons := self.obstacles(service):
            return launch._replace(missing=tuple(reasons))
        steps = [step for x in service.instances for step in self.steps(x, service)]
        notes = [self.pool_notes()] if len(service.instances) > 1 else []
        if any(x.copies > 1 and not self.together(x, service) for x in service.instances):
            notes.append("Spread requests evenly over the instances.")
        return launch._replace(steps=tuple(steps), notes=tuple(notes), comments=service.comments)

    def steps(self, instance: Instance, service: LaunchedService) -> list[Step]:
        """The commands of one kind of instance: one, or of the first machine and of the others."""
        program, flags = self.program(service), self.flags(instance, service)
        machines = self.machines(instance)
        if machines == 1:
            together = self.together(instance, service)
            where = (instance._replace(copies=1) if together else instance).where()
            command = command_line(instance.environment + program, [*flags, *together])
            return [Step(where, command)]
        rest, rank = "machine 1", 1
        if machines > 2:
            rest, rank = f"machines RANK=1 to {machines - 1}", Shell('"$RANK"')
        first = instance.where("machine 0, whose address is HEAD")
        other = self.join_options(machines, rank)
        return [
            Step(first, command_line(program, [*flags, *self.join_options(machines, 0)])),
            Step(instance.where(rest), command_line(program, [*flags, *other])),
        ]

    def join_options(self, machines: int, rank: object) -> list[object]:
        """Options by which one of several machines joins an instance."""
        others = () if rank == 0 else self.others
        return ["--nnodes", machines, *self.address, "--node-rank", rank, *others]

    def budget(self, instance: Instance, service: LaunchedService) -> int:
        """Tokens of a pass of one attention group, as the estimator counts its time and memory.

        The plan's, or the engine's own, with a whole prompt beside the tokens that decode where
        the engine takes it whole; never less than the tokens that decode, or the prompts of a
        prefill pool.
        """
        scheduling = self.scheduling
        if instance.role == "prefill":
            decoding, prompts = 0, service.isl * instance.prompts
        else:
            decoding = instance.group_requests * (1 + instance.drafts)
            takes_whole = scheduling.get("whole") and not (instance.role or instance.arriving)
            prompts = service.isl if takes_whole else 0
        if instance.chunk < math.inf:
            return int(max(instance.chunk, decoding))
        return int(max(scheduling.get("budget", BUDGET), decoding + prompts))


def _obstacles(service: LaunchedService) -> Iterator[str]:
    """Why no engine can run the plan, if so."""
    if service.checkpoint.missing:
        yield service.checkpoint.missing
    if service.context > service.limit:
        longest = f"{service.limit:.12g}"
        yield f"requests of {service.context} tokens are beyond the model's {longest}"
    instances = service.instances
    if any(x.maker == "other" for x in instances):
        yield "the chip is not an NVIDIA or AMD GPU"
    if any(x.drafts for x in instances) and not (service.heads or service.draft):
        yield "the model has no heads that draft, and no model drafts for it"
    if any(x.drafts and x.role for x in instances):
        yield "drafts in pools that prefill and decode are set up by hand"
    if any(x.drafts and x.pp > 1 for x in instances):
        yield "drafts over pipeline stages are not offered by every model and release"
    if any(x.groups > 1 for x in instances) and not service.experts:
        yield "attention groups of a model without experts are instances of their own"


def months_before(month: str) -> float:
    """Months from one such as 2025-12 to ``NEWEST``; below 0 of a later one."""
    (year, number), (last, end) = (map(int, x.split("-")) for x in (month, NEWEST))
    return 12.0 * (last - year) + end - number


@cache
def _releases(engine: str) -> list[tuple[Key, str, str]]:
    """What orders each release of an engine, its month and its name; oldest first."""
    months = tables("releases").get(engine, {})
    rows = ((x, month) for month, names in months.items() for x in names)
    return sorted((key, month, x) for x, month in rows if (key := _key(x)))


def _key(text: str) -> Key | None:
    """What orders releases: numbers, then candidates, the release itself, what came after it."""
    match = RELEASE.fullmatch(text)
    if match is None:
        return None
    numbers = [*map(int, match[1].split(".")), 0, 0][:4]
    return numbers, {None: 0, "post": 1}.get(match[2], -1), int(match[3] or 0)
