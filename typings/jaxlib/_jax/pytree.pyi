"""Types of the structures of JAX's trees."""

class PyTreeDef:
    num_leaves: int
