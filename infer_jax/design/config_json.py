"""Writes a design as a Hugging Face config.json that can be built and read back.

The source model's own config is the template: only keys whose numbers changed are rewritten, and
the result is read back by the catalog and compared with the design.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from infer_jax.catalog import Model, load_model
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import json_of
from infer_jax.catalog.huggingface.assembly import config_of
from infer_jax.catalog.models import BUNDLED, LARGEST
from infer_jax.errors import InputError
from infer_jax.specs import Architecture, leaves


def template(model: Model | str) -> dict[str, object]:
    """The config.json of a bundled model by name, or of a file or folder."""
    name = model.source if isinstance(model, Model) else model
    bundled = BUNDLED / f"{(model.name if isinstance(model, Model) else model).casefold()}.json"
    if bundled.is_file():
        return json_of(str(bundled), read_text(bundled, LARGEST))["config"]
    path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
    return json_of(str(path), read_text(path, LARGEST), LARGEST)


def export(
    arch: Architecture, base: Mapping[str, object], **formats: str
) -> tuple[dict[str, object], Architecture]:
    """(config.json, the architecture it is read back as) of a design.

    Raises:
        InputError: the family of the template cannot spell the design.
    """
    config = config_of(arch, base)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        try:
            read = load_model(path, **formats).architecture
        except InputError as error:
            where = f"config.json of family {config.get('model_type')}"
            raise InputError(where, error.field, error.value, error.allowed) from None
    # the two may differ in the counts of norms and biases alone
    family = str(config.get("model_type"))
    if jax.tree.structure(arch) != jax.tree.structure(read):
        raise InputError("config.json", "family", family, "one that has layers of this structure")
    for (path, _, x), (_, _, y) in zip(leaves(arch), leaves(read), strict=True):
        if not path.endswith("vectors") and not np.isclose(float(x), float(y), rtol=1e-12):
            allowed = f"{float(y):.12g}, which is what a config of family {family} can say"
            raise InputError("config.json", path, float(x), allowed)
    return config, read
