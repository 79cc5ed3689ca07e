"""A plan as commands that start it, for a named version of each engine."""

from infer_jax.launch.checkpoints import (
    ModelCheckpoint as ModelCheckpoint,
    checkpoint as checkpoint,
)
from infer_jax.launch.commands import ENGINES as ENGINES, launches as launches
from infer_jax.launch.plans import (
    Starter as Starter,
    instances as instances,
    service as service,
)
from infer_jax.launch.servers import (
    Instance as Instance,
    Launch as Launch,
    LaunchedService as LaunchedService,
    Step as Step,
)
