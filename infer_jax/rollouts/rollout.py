"""A plan to start: its engine and servers, the load that it is for, and the runs that measure it.

It is data, a part of what ``plan --json`` prints, from which every file of a folder is written.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self, get_args, get_origin, get_type_hints

from infer_jax.engines import ENGINES, LaunchedService, ServingEngine
from infer_jax.errors import InputError

MOST = 1e6  # GPUs, and requests in a second or in flight
CHECKPOINT = "YOUR_CHECKPOINT"  # stands where no repository is known


class Load(NamedTuple):
    """The requests of a benchmark: tokens in and out of each, and how they come.

    ``concurrency``: requests kept in flight, or 0; ``rate``: requests per second, or 0.
    """

    isl: int
    osl: int
    concurrency: int = 0
    rate: float = 0.0

    @property
    def prompts(self) -> int:
        """Requests of a run: eight times those in flight, or of two minutes, at least 40."""
        return max(8 * self.concurrency, math.ceil(120.0 * self.rate), 40)


class Rollout(NamedTuple):
    """A plan to start.

    ``engine``: its name; ``systems``, ``config``: what ``calibrate`` calls the system of each pool
    and the model; ``title``: the model, layout and system in words; ``load``: what the plan is
    for; ``prefix``: tokens of a prompt that it counts as cached; ``expected``: TTFT and TPOT,
    ms; ``formats``: asked for of weights and cache; ``measure``: loads of one instance that tell
    ``calibrate`` most; ``gaps``: what is missing, in sentences; ``promises``: what the plan says of
    its times, rent and odds, in words: each one's name, limit and value.
    """

    engine: str
    service: LaunchedService
    systems: tuple[str, ...]
    config: str
    title: str
    load: Load
    prefix: float = 0.0
    expected: tuple[float, ...] = ()
    formats: tuple[str | None, str | None] = (None, None)
    measure: tuple[Load, ...] = ()
    gaps: tuple[str, ...] = ()
    promises: tuple[tuple[str, ...], ...] = ()

    @property
    def serving(self) -> ServingEngine:
        """The engine."""
        return ENGINES[self.engine]

    @property
    def image(self) -> str:
        """The container image of the engine's version; "" where none is known for the chip."""
        image = self.serving.packages.images.get(self.service.instances[0].maker or "NVIDIA", "")
        return image.format(self.serving.version)

    @property
    def packages(self) -> str:
        """What pip installs where there are no containers; "" where its wheels do not fit."""
        package = self.serving.packages.package
        if not package or (self.service.instances[0].maker or "NVIDIA") != "NVIDIA":
            return ""
        release = self.image.rpartition(":")[2].removeprefix("v") or self.serving.version
        return f"{package}=={release}"

    @property
    def spread(self) -> bool:
        """Whether an instance needs several machines."""
        return any(self.serving.machines(x) > 1 for x in self.service.instances)

    @property
    def under_slurm(self) -> bool:
        """Whether its servers are started by Slurm alone."""
        return self.serving.under_slurm and self.spread

    @property
    def files(self) -> Mapping[str, str]:
        """Settings of the engine that have no option, by the name of their file."""
        files = self.serving.launch(self.service).files
        return {name: f"{text}\n" for name, text in files.items() if name != "pools.yaml"}

    def startable(self) -> Self:
        """The same on an engine that starts it, with a placeholder where no weights are known.

        Raises:
            InputError: no engine starts the plan.
        """
        gaps, service = list(self.gaps), self.service
        if missing := service.checkpoint.missing:
            gaps.append(f"The weights: {missing}. Put their place where {CHECKPOINT} stands.")
            load = service.checkpoint._replace(repository=CHECKPOINT, missing="", cast="")
            service = service._replace(checkpoint=load)
        reasons = {name: "; ".join(engine.obstacles(service)) for name, engine in ENGINES.items()}
        order = sorted(ENGINES, key=lambda name: name != self.engine)
        able, why = next((x for x in order if not reasons[x]), ""), reasons[self.engine]
        if not able:
            raise InputError("deploy", "plan", self.title, f"one that an engine starts: {why}")
        own, title = self.serving.title, ENGINES[able].title
        if able != self.engine:
            gaps.append(f"{own}: {why}. {title} starts it, whose times the plan does not predict.")
        line = "".join(x for x in " ".join(self.title.split()) if x.isprintable())
        found = self._replace(engine=able, service=service, title=line)  # of comments
        if not found.image:
            gaps.append(f"A container image of {title} for this GPU: put it where IMAGE stands.")
        return found._replace(gaps=tuple(dict.fromkeys(gaps)))

    def to_dict(self) -> dict[str, object]:
        """The rollout for JSON: fields by their names, None for what is not finite."""
        return {name: _plain(value) for name, value in self._asdict().items()}

    @classmethod
    def of(cls, fields: object) -> Self:
        """The rollout that JSON holds.

        Raises:
            InputError: a field is missing, unknown or of another kind.
        """
        try:
            rollout = _read(cls, fields)
            instances = rollout.service.instances
            roles = [one.role for one in instances]
            sizes = [n for x in instances for n in (*x[:6], x.machine, x.group_requests)]
            checks = {
                "engine": rollout.engine in ENGINES,
                "systems": bool(rollout.systems),
                "roles": roles in ([""], ["prefill", "decode"]),
                "sizes": min(sizes) >= 1 and sum(x.copies * x.gpus for x in instances) <= MOST,
                "load": rollout.load.rate < MOST and rollout.load.concurrency < MOST,
            }
            if wrong := [name for name, right in checks.items() if not right]:
                raise ValueError(", ".join(wrong))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            wrong = f"{type(error).__name__} {error}".strip()
            allowed = 'the object "deployment" that infer-jax plan --json prints'
            raise InputError("deploy", "plan", wrong, allowed) from None
        return rollout


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        items = [_plain(x) for x in value]
        return items if names is None else dict(zip(names, items, strict=True))
    return None if isinstance(value, float) and math.isinf(value) else value


def _read(kind: Any, value: Any) -> Any:
    """The value of a kind that JSON holds."""
    if hasattr(kind, "_fields"):
        kinds = get_type_hints(kind)
        return kind(**{name: _read(kinds[name], x) for name, x in value.items()})
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], x) for x in value)
    if kind is float:
        return math.inf if value is None else float(value)
    if kind in (int, str, bool) and type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
