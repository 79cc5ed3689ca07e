"""Models, by bundled name or from a Hugging Face config.json, and as one that is read back."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import jax
import numpy as np

from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import Parsed, json_of
from infer_jax.catalog.huggingface.assembly import FAMILIES, architecture, config_of
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.names import format_of, nearest, shape_of
from infer_jax.errors import InputError, WrongPartError
from infer_jax.specs import Architecture, leaves
from infer_jax.specs.fields import fresh

HUB = "https://huggingface.co/"
BUNDLED = Path(__file__).parent / "architectures"
LARGEST = 16 * 2**20  # bytes: configs are kilobytes, long exclusion lists a megabyte


@dataclass(frozen=True, repr=False)
class Model:
    """An architecture and what is known about where it came from.

    ``published`` holds the publisher's own figures where there are any: parameters in
    ``total`` and ``active`` per token, and their ``source``. ``notes`` say what was assumed
    or left out. ``repository``: the weights that were asked for, by their id on Hugging Face or
    by their folder, of a bundled name those tuned to follow instructions; "" where none is known.
    """

    name: str
    architecture: Architecture
    model_type: str
    source: str
    quantisation: str
    notes: tuple[str, ...] = ()
    published: Mapping[str, float | str] = field(default_factory=dict)
    repository: str = ""

    def __repr__(self) -> str:
        """Name, kind and formats; the architecture's own repr has every number."""
        return f"Model({self.name!r}, {self.model_type}, {self.quantisation})"

    @property
    def tree(self) -> Architecture:
        """The pytree that an estimator takes: a model may stand where it is meant."""
        return self.architecture

    def __getattr__(self, name: str) -> object:
        """Raise, in one sentence, where a number is read of a ``Model`` and not of its part."""
        if name in Architecture.__dataclass_fields__:
            raise WrongPartError(f"Model {self.name!r}", name, "architecture")
        raise AttributeError(f"'Model' object has no attribute {name!r}")


@cache
def list_models() -> tuple[str, ...]:
    """The names of the bundled models.

    >>> "llama-3.1-8b" in list_models()
    True
    """
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.json")))


def model_named(name: str | None) -> str | None:
    """The bundled model of a Hugging Face name, or None where none has its shape.

    >>> model_named("meta-llama/Llama-3.1-8B-Instruct"), model_named("nvidia/Qwen3-32B-NVFP4")
    ('llama-3.1-8b', 'qwen3-32b')
    """
    return None if name is None else shape_of(name, list_models())


def load_model(
    name_or_path: str | os.PathLike[str], *, quant: str | None = None, kv_dtype: str | None = None
) -> Model:
    """A bundled model by name, or the model a config.json describes.

    Args:
        name_or_path: a bundled name (in any case), a name on Hugging Face whose shape is
            bundled, a config.json, or a folder that holds one. An hf_quant_config.json beside it
            is read too. A format in the name (``-FP8``) is that of all matrices. Of a new
            ``model_type``, "config.json:llama" says which known one it is read as.
        quant: a format for all matrices in place of the checkpoint's: bf16, fp8, fp8_block,
            int8, int4, awq, gptq, nvfp4, mxfp4. Embedding and head stay unquantised.
        kv_dtype: a format for the KV cache: bf16, fp16, fp8, or auto for the checkpoint's.

    Raises:
        InputError: an unknown name, an unreadable file, or a config that is not understood.

    >>> load_model("Llama-3.1-8B", quant="fp8").quantisation
    'fp8 (1 byte, 8-bit products); the rest bfloat16; KV cache bfloat16'
    """
    if isinstance(name_or_path, str) and name_or_path.casefold() in list_models():
        return _bundled(name_or_path.casefold(), quant, kv_dtype)
    place, family = _read_as(name_or_path)
    path = _config_path(place)
    if path is None:
        return _published(str(name_or_path), quant, kv_dtype)
    config, published = Facts(_json(path), str(path)), None
    beside = path.with_name(path.name.removesuffix("config.json") + "hf_quant_config.json")
    if path.name.endswith("config.json") and beside.is_file():
        published = Facts(_json(beside), str(beside))
    name = path.name.removesuffix(".json").removesuffix("_config")
    if path.name == "config.json":
        name = path.absolute().parent.name
    formats = {"quant": quant, "kv_dtype": kv_dtype, "family": family}
    arch, model_type, words = architecture(config, published, **formats)
    folder = str(path.parent)
    return Model(name, arch, model_type, str(path), words, tuple(config.notes), {}, folder)


def template(model: Model | str) -> Parsed:
    """The config.json of a bundled model by name, or of a file or folder."""
    name = model.name if isinstance(model, Model) else model
    if (bundled := BUNDLED / f"{name.casefold()}.json").is_file():
        return _json(bundled)["config"]
    source = model.source if isinstance(model, Model) else model
    return _json(_config_path(source) or Path(source))


def export(
    arch: Architecture, base: Mapping[str, object], **formats: str
) -> tuple[dict[str, object], Architecture]:
    """(config.json, the architecture it is read back as) of a design.

    ``base``, the config of the model that it began as, is its template: only keys whose numbers
    changed are rewritten.

    Raises:
        InputError: the family of the template cannot spell the design.
    """
    config, family = config_of(arch, base), str(base.get("model_type"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        try:
            read = load_model(path, **formats).architecture
        except InputError as error:
            where = f"config.json of family {family}"
            raise InputError(where, error.field, error.value, error.allowed) from None
    # the two may differ in the counts of norms and biases alone
    if jax.tree.structure(arch) != jax.tree.structure(read):
        raise InputError("config.json", "family", family, "one that has layers of this structure")
    for (path, _, x), (_, _, y) in zip(leaves(arch), leaves(read), strict=True):
        if not path.endswith("vectors") and not np.isclose(float(x), float(y), rtol=1e-12):
            allowed = f"{float(y):.12g}, which is what a config of family {family} can say"
            raise InputError("config.json", path, float(x), allowed)
    return config, read


def _read_as(name_or_path: str | os.PathLike[str]) -> tuple[str | os.PathLike[str], str | None]:
    """A file or folder, and the family that follows its name, if one does: config.json:llama."""
    place, sign, family = str(name_or_path).rpartition(":")
    if not sign or _config_path(name_or_path) or not _config_path(place):
        return name_or_path, None
    if family not in FAMILIES:
        allowed = f"one of {', '.join(sorted(FAMILIES))}"
        raise InputError("load_model", "as", family, allowed)
    return place, family


def _config_path(name_or_path: str | os.PathLike[str]) -> Path | None:
    """The config.json meant, a file or the one in a folder; None where there is neither."""
    try:
        path = Path(name_or_path)
        if str(name_or_path) and path.is_dir():
            return path / "config.json"
        if path.is_file() or path.name.endswith(".json"):
            return path
    except (TypeError, ValueError, OSError):  # not a path, a null byte, a name too long
        pass
    return None


def _published(name: str, quant: str | None, kv_dtype: str | None) -> Model:
    """The bundled model with the shape of a name on Hugging Face, in that name's format."""
    known = list_models()
    shape, stored = shape_of(name, known), format_of(name)
    if shape is None:
        allowed = "a name that `infer-jax models` lists, a config.json, or a folder that holds one"
        raise InputError("load_model", "model", name, f"{nearest(name, known)}{allowed}")
    model = _bundled(shape, quant or stored, kv_dtype)
    in_format = f", in {stored} by its name" if stored and quant is None else ""
    notes = (*model.notes, f"{name} has the shape of {shape}{in_format}")
    return replace(model, notes=notes, repository=_repository(name, model.repository))


def _repository(name: str, bundled: str) -> str:
    """The repository that a name refers to; without a publisher it may be the bundled model's.

    >>> _repository("Qwen/Qwen3-32B-AWQ", "Qwen/Qwen3-32B")
    'Qwen/Qwen3-32B-AWQ'
    """
    plain = name.removeprefix(HUB).rstrip("/")
    if "/" in plain:
        return plain
    return bundled if bundled.casefold().endswith(f"/{plain.casefold()}") else ""


def _bundled(name: str, quant: str | None, kv_dtype: str | None) -> Model:
    """A bundled model, with numbers of its own (``fresh``)."""
    model = _read_bundled(name, quant, kv_dtype)
    return replace(model, architecture=fresh(model.architecture))


@cache  # a command asks for one model several times, of 80 layers
def _read_bundled(name: str, quant: str | None, kv_dtype: str | None) -> Model:
    facts = _json(BUNDLED / f"{name}.json")
    config, source = Facts(facts["config"], f"{name} (bundled)"), facts["source"]
    arch, model_type, words = architecture(config, quant=quant, kv_dtype=kv_dtype)
    repository = "/".join(source.removeprefix(HUB).split("/")[:2])
    served = facts.get("served", repository) if source.startswith(HUB) else ""
    notes, figures = tuple(config.notes), facts["published"]
    return Model(facts["name"], arch, model_type, source, words, notes, figures, served)


def _json(path: Path) -> Parsed:
    """The object in a file, infinities included.

    Published Nemotron configs hold Python's ``Infinity`` in keys that are not read here;
    where a number is read, infinity and NaN are refused.
    """
    value = json_of(str(path), read_text(path, LARGEST), LARGEST)
    if not isinstance(value, dict):
        raise InputError(str(path), "top level", type(value).__name__, "a JSON object")
    return value
