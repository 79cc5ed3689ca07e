"""The formats in which the parts of a checkpoint are stored, and the bits of their products.

Stored bytes are (bits + scale bits / group) / 8; per-tensor and per-channel scales are left
out, being under a thousandth of a byte per element.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from infer_jax.catalog.huggingface.facts import REQUIRED, Facts
from infer_jax.catalog.huggingface.module_names import Names
from infer_jax.errors import InputError
from infer_jax.specs import Format

MIN_SHARE = 0.02  # of a layer's elements: gates of linear attention, never quantised, are fewer
MAX_GROUPS = 64  # each of which is searched for every module


@dataclass(frozen=True)
class Scheme:
    """One number format of a checkpoint; ``block``: outputs and inputs that share a scale."""

    name: str
    bytes: float
    bits: int
    block: tuple[int, int] = (1, 1)

    def format(self) -> Format:
        """The format as a spec."""
        rows, columns = self.block
        return Format.of(bytes=self.bytes, bits=self.bits, rows=rows, columns=columns)


def scheme(
    name: str, bits: int, multiplied: int, block: tuple[int, int] = (1, 1), scale: float = 0.0,
    *, padded: bool = False,
) -> Scheme:  # fmt: skip
    """Numbers of ``bits``, with ``scale`` bits of scale and zero point per block.

    ``padded``: engines fill up the last block of a slice, so that it may be cut anywhere.
    """
    size = (bits + scale / (block[0] * block[1])) / 8.0
    return Scheme(name, size, multiplied, (1, 1) if padded else block)


BF16, FP16 = scheme("bfloat16", 16, 16), scheme("float16", 16, 16)
DTYPES = {"bfloat16": BF16, "float16": FP16, "float32": scheme("float32", 32, 16)}
FP8, INT8 = scheme("fp8", 8, 8), scheme("int8", 8, 8)
# DeepSeek-V3 report (arXiv 2412.19437), Section 3.3: one float32 scale per 128 x 128 weights
FP8_BLOCK = scheme("fp8 in blocks of 128 x 128", 8, 8, (128, 128), 32)
# A float16 scale and a 4-bit zero point per 128 weights: AutoAWQ's and GPTQ's packing
INT4 = scheme("int4 in groups of 128", 4, 16, (1, 128), 16 + 4)
INT4_SYMMETRIC = scheme("int4 in groups of 128", 4, 16, (1, 128), 16)
# Two-level scaling: an e4m3 scale per 16 (NVIDIA, "Introducing NVFP4", 2025)
NVFP4 = scheme("nvfp4", 4, 4, (1, 16), 8)
# An e8m0 scale per 32 (OCP Microscaling Formats v1.0); weights only, as gpt-oss ships. 90 groups
# over 8 ranks are 12 on each, the last filled up (vllm/model_executor/models/gpt_oss.py, 0.11)
MXFP4 = scheme("mxfp4", 4, 16, (1, 32), 8, padded=True)
MXFP4_FP8 = scheme("mxfp4 weights, fp8 activations", 4, 8, (1, 32), 8, padded=True)
# what ``quant=`` and ``kv_dtype=`` may be
CHOICES = {
    "bf16": BF16, "fp8": FP8, "fp8_block": FP8_BLOCK, "int8": INT8, "int4": INT4, "awq": INT4,
    "gptq": INT4, "nvfp4": NVFP4, "mxfp4": MXFP4,
}  # fmt: skip
CACHES = {"bf16": BF16, "fp16": FP16, "fp8": FP8}
CACHE_ALGORITHMS = {"FP8": FP8, "INT8": INT8, "NVFP4": NVFP4}
MODELOPT = {
    "FP8": FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8,
    "FP8_PB_WO": FP8_BLOCK,
    "MXFP8": scheme("mxfp8", 8, 8, (1, 32), 8),
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_NVFP4": scheme("nvfp4 weights only", 4, 16, (1, 16), 8),
    "MXFP4": MXFP4,
    "W4A8_MXFP4_FP8": MXFP4_FP8,
    "W4A16_AWQ": INT4_SYMMETRIC,
    "INT4_AWQ": INT4_SYMMETRIC,
    "W4A8_AWQ": scheme("int4 in groups of 128, fp8 activations", 4, 8, (1, 128), 16),
    "W8A16": scheme("int8 weights only", 8, 16),
    "W8A8_SQ_PER_CHANNEL": INT8,
}


def _of_group(group: Facts) -> Scheme:
    """The format of one of compressed-tensors' ``config_groups``.

    Raises:
        InputError: a type or a number of bits that is not known.
    """
    weights, inputs = group.require("weights"), group.section("input_activations")
    kind = weights.text("type", allowed=("float", "int"))
    bits = weights.count("num_bits", low=2, high=8)
    size = weights.count("group_size", default=0, low=-1, silent=True)
    block = weights.items("block_structure")
    activations = 16
    if inputs is not None:
        activations = inputs.count("num_bits", default=16, low=4, high=16, silent=True)
    multiplied = next(c for c in (4, 8, 16) if c >= max(bits, activations))
    if kind == "float" and bits not in (4, 8):
        raise weights.error("num_bits", bits, "4 or 8 for floats")
    if block is not None:
        return scheme(f"fp{bits} in blocks", bits, multiplied, _block(weights, block), 32)
    name = f"{'fp' if kind == 'float' else 'int'}{bits}"
    if size <= 0:
        return scheme(name, bits, multiplied)
    in_groups = f"{name} in groups of {size}"
    if kind == "float":
        known = {(4, 16): "nvfp4", (4, 32): "mxfp4", (8, 32): "mxfp8"}.get((bits, size), in_groups)
        return scheme(known, bits, multiplied, (1, size), 8, padded=known == "mxfp4")
    zero_point = 0 if weights.flag("symmetric", default=True) else bits
    return scheme(in_groups, bits, multiplied, (1, size), 16 + zero_point)


def _of_blocks(facts: Facts, method: str) -> Scheme:
    """fp8 weights: in blocks with a float32 scale where ``weight_block_size`` is given."""
    items = facts.items("weight_block_size")
    if items is None:
        return FP8
    block = _block(facts, items)
    return scheme(f"fp8 in blocks of {block[0]} x {block[1]}", 8, 8, block, 32)


def _of_packed(facts: Facts, method: str) -> Scheme:
    """AWQ and GPTQ: ``bits`` with a float16 scale and a zero point per ``group_size``."""
    if facts.section("dynamic") is not None and facts.values["dynamic"]:
        raise facts.error("dynamic", "a table", "none: one format for all modules")
    bits = facts.count("bits", "w_bit", low=2, high=8)
    size = facts.count("group_size", "q_group_size", default=128, low=-1)
    if size <= 0:
        return scheme(f"{method} int{bits} per channel", bits, 16)
    return scheme(f"{method} int{bits} in groups of {size}", bits, 16, (1, size), 16 + bits)


def _of_bitsandbytes(facts: Facts, method: str) -> Scheme:
    """int8, or 4 bits in blocks of 64 with float32 scales, themselves quantised on request.

    Source: QLoRA (arXiv 2305.14314), Section 3: 0.5 and 0.127 bits of scale per parameter.
    """
    if facts.flag("load_in_8bit", default=False):
        return INT8
    if not facts.flag("load_in_4bit", default=False):
        raise facts.error("load_in_4bit", "missing", "true here or under load_in_8bit")
    if facts.flag("bnb_4bit_use_double_quant", default=False):
        return scheme("nf4 with quantised scales", 4, 16, (1, 64), 8 + 32 / 256, padded=True)
    return scheme("nf4", 4, 16, (1, 64), 32, padded=True)


def _block(facts: Facts, block: list) -> tuple[int, int]:
    sizes = [b for b in block if type(b) is int and 0 < b < 2**20]
    if len(block) != 2 or len(sizes) != 2:
        raise facts.error("weight_block_size", block, "two whole numbers above 0")
    return sizes[0], sizes[1]


# methods of one format for all modules that are not skipped, by ``quant_method``
METHODS = {
    "fp8": _of_blocks,
    "fbgemm_fp8": _of_blocks,
    "awq": _of_packed,
    "gptq": _of_packed,
    "bitsandbytes": _of_bitsandbytes,
}
KNOWN_METHODS = (
    "fp8, fbgemm_fp8, modelopt, compressed-tensors, mxfp4, awq, gptq, bitsandbytes; "
    "or quant= to say it"
)

Stored = tuple[tuple[Names | None, Scheme], ...]


@dataclass(frozen=True)
class Quantisation:
    """The formats of a checkpoint: ``stored`` by module name, else ``unquantised``.

    Names that are None are those of every module in ``stored``, and of none in ``excluded``.
    """

    unquantised: Scheme
    stored: Stored = ()
    excluded: Names | None = None
    head: bool = False  # whether the output head is looked up like any other module
    cache: Scheme | None = None

    def scheme(self, module: str) -> Scheme:
        """The format of one module; convolutions are never converted."""
        if module.endswith("conv1d") or (self.excluded and self.excluded.match(module)):
            return self.unquantised
        found = (one for names, one in self.stored if names is None or names.match(module))
        return next(found, self.unquantised)

    def format(self, matrices: Mapping[str, int], prefix: str = "") -> Format:
        """The format of several modules as one: mean bytes, widest multiplication, largest block.

        Convolutions, and modules of under ``MIN_SHARE`` of the others, do not set the latter two.
        """
        by_name = {name: self.scheme(prefix + name) for name, count in matrices.items() if count}
        if not by_name:
            return self.unquantised.format()
        sizes = {scheme.bytes for scheme in by_name.values()}
        total = sum(scheme.bytes * matrices[name] for name, scheme in by_name.items())
        # a mean of equal numbers need not be that number
        size = sizes.pop() if len(sizes) == 1 else total / sum(matrices.values())
        products = [name for name in by_name if not name.endswith("conv1d")]
        least = MIN_SHARE * sum(matrices[name] for name in products)
        large = [by_name[name] for name in products if matrices[name] >= least]
        rows, columns = (max(scheme.block[side] for scheme in large) for side in (0, 1))
        bits = max(scheme.bits for scheme in large)
        return Format.of(bytes=size, bits=bits, rows=rows, columns=columns)

    def sentence(self) -> str:
        """The checkpoint's formats in words."""
        words = dict.fromkeys(
            f"{scheme.name} ({scheme.bytes:.6g} byte{'' if scheme.bytes == 1 else 's'}, "
            f"{scheme.bits}-bit products)"
            for _, scheme in self.stored
        )
        formats = f"{' and '.join(words)}; the rest " if words else ""
        cache = self.cache or self.unquantised
        return f"{formats}{self.unquantised.name}; KV cache {cache.name}"


def read(config: Facts, outer: Facts, published: Facts | None) -> Quantisation:
    """The formats in ``quantization_config`` (inside or around the text) and hf_quant_config.json.

    Raises:
        InputError: a method, an algorithm or a number format that is not known.
    """
    names = {"default": None, "allowed": tuple(DTYPES)}
    named = (facts.text("torch_dtype", "dtype", **names) for facts in (config, outer))
    dtype = next(filter(None, named), None)
    if dtype is None:
        config.note("torch_dtype is missing: bfloat16 is taken for what is not quantised")
    base = DTYPES[dtype or "bfloat16"]
    facts = config.section("quantization_config") or outer.section("quantization_config")
    inner = published.section("quantization") if published is not None else None
    if inner is not None:
        formats = _modelopt(inner, base)
        cache = formats.cache or (_cache(facts) if facts is not None else None)
        return replace(formats, cache=cache)
    if facts is None:
        return Quantisation(base)
    method = facts.text("quant_method", default="modelopt" if "quant_algo" in facts else REQUIRED)
    if "quant_algo" in facts or method == "modelopt":
        return _modelopt(facts, base)
    if method == "compressed-tensors":
        return _compressed(facts, base)
    skipped = _names(facts, "modules_to_not_convert", "llm_int8_skip_modules")
    if method == "mxfp4":  # converts experts alone
        return Quantisation(base, ((Names(facts, "targets", ("experts",)), MXFP4),), skipped)
    if method not in METHODS:
        raise facts.error("quant_method", method, KNOWN_METHODS)
    stored: Stored = ((None, METHODS[method](facts, method)),)
    # DeepSeek-V4: experts in 4 bits, multiplied with 8-bit activations; the rest by the method
    if config.text("expert_dtype", default=None, allowed=("fp4", "fp8")) == "fp4":
        stored = ((Names(config, "expert_dtype", ("experts",)), MXFP4_FP8), *stored)
    return Quantisation(base, stored, skipped)


def override(own: Quantisation, quant: str | None, kv_dtype: str | None) -> Quantisation:
    """``own`` with all matrices in format ``quant`` and the cache in ``kv_dtype``.

    Embedding and head stay as the checkpoint's unquantised numbers.

    Raises:
        InputError: a name that is not one of the choices.
    """
    if quant is not None:
        stored = ((None, _choice("quant", quant, CHOICES)),)
        own = replace(own, stored=stored, excluded=None, head=False)
    if kv_dtype not in (None, "auto"):
        own = replace(own, cache=_choice("kv_dtype", kv_dtype, CACHES, "auto"))
    return own


def _choice(option: str, name: str, known: Mapping[str, Scheme], *others: str) -> Scheme:
    name = str(name).lower()
    if name not in known:
        raise InputError("load_model", option, name, ", ".join((*known, *others)))
    return known[name]


def _modelopt(facts: Facts, base: Scheme) -> Quantisation:
    algorithm = facts.text("quant_algo", default=None, allowed=(*MODELOPT, "MIXED_PRECISION"))
    skipped, cache = _names(facts, "exclude_modules", "ignore"), _cache(facts)
    if algorithm is None:
        return Quantisation(base, cache=cache)
    if algorithm != "MIXED_PRECISION":
        return Quantisation(base, ((None, MODELOPT[algorithm]),), skipped, True, cache)
    layers, by_scheme = facts.require("quantized_layers"), dict[Scheme, list[str]]()
    for name, value in layers.values.items():
        algorithm = layers.of(name, value).text("quant_algo", allowed=tuple(MODELOPT))
        by_scheme.setdefault(MODELOPT[algorithm], []).append(name)
    stored = tuple((Names(layers, "quantized_layers", n), s) for s, n in by_scheme.items())
    return Quantisation(base, stored, skipped, True, cache)


def _compressed(facts: Facts, base: Scheme) -> Quantisation:
    groups, stored = facts.require("config_groups"), []
    if len(groups.values) > MAX_GROUPS:
        count = f"{len(groups.values)} groups"
        raise facts.error("config_groups", count, f"at most {MAX_GROUPS}")
    for name, value in groups.values.items():
        group = groups.of(name, value)
        targets = group.names("targets")
        in_all = not targets or "Linear" in targets
        modules = None if in_all else Names(group, "targets", targets)
        stored.append((modules, _of_group(group)))
    return Quantisation(base, tuple(stored), _names(facts, "ignore"), True, _cache(facts))


def _cache(facts: Facts) -> Scheme | None:
    """The format of the KV cache: an algorithm's name, or a scheme of bits and type."""
    key = "kv_cache_quant_algo" if "kv_cache_quant_algo" in facts else "kv_cache_scheme"
    if isinstance(value := facts.values.get(key), dict):
        one = facts.of(key, value)
        kind = one.text("type", allowed=("float", "int"))
        one.count("num_bits", low=8, high=8)
        return FP8 if kind == "float" else INT8
    name = facts.text(key, default=None, allowed=tuple(CACHE_ALGORITHMS))
    return None if name is None else CACHE_ALGORITHMS[name]


def _names(facts: Facts, *keys: str) -> Names:
    return Names(facts, keys[0], facts.names(*keys))
