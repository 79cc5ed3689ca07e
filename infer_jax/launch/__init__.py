"""A plan as commands that start it, for a named version of each engine."""

from infer_jax.engines import (
    Instance as Instance,
    Launch as Launch,
    LaunchedService as LaunchedService,
    ModelCheckpoint as ModelCheckpoint,
    Step as Step,
)
from infer_jax.launch.checkpoints import checkpoint as checkpoint
from infer_jax.launch.commands import ENGINES as ENGINES, budget as budget, launches as launches
from infer_jax.launch.plans import (
    Starter as Starter,
    instances as instances,
    service as service,
)
