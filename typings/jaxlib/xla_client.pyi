"""Where JAX's signatures name the classes of its compiled module."""

from jaxlib._jax import (
    Client as Client,
    Device as Device,
    NamedSharding as NamedSharding,
    Sharding as Sharding,
)
