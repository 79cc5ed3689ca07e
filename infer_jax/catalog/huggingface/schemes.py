"""Bytes that a quantised number takes, and the bits in which it is multiplied.

Stored bytes are (bits + scale bits / group) / 8; per-tensor and per-channel scales are left
out, being under a thousandth of a byte per element.
"""

from dataclasses import dataclass

from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.specs import Format


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


def of_group(group: Facts) -> Scheme:
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


def of_blocks(facts: Facts, method: str) -> Scheme:
    """fp8 weights: in blocks with a float32 scale where ``weight_block_size`` is given."""
    items = facts.items("weight_block_size")
    if items is None:
        return FP8
    block = _block(facts, items)
    return scheme(f"fp8 in blocks of {block[0]} x {block[1]}", 8, 8, block, 32)


def of_packed(facts: Facts, method: str) -> Scheme:
    """AWQ and GPTQ: ``bits`` with a float16 scale and a zero point per ``group_size``."""
    if facts.section("dynamic") is not None and facts.values["dynamic"]:
        raise facts.error("dynamic", "a table", "none: one format for all modules")
    bits = facts.count("bits", "w_bit", low=2, high=8)
    size = facts.count("group_size", "q_group_size", default=128, low=-1)
    if size <= 0:
        return scheme(f"{method} int{bits} per channel", bits, 16)
    return scheme(f"{method} int{bits} in groups of {size}", bits, 16, (1, size), 16 + bits)


def of_bitsandbytes(facts: Facts, method: str) -> Scheme:
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
