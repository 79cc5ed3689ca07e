"""The formats in which the parts of a checkpoint are stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from infer_jax.catalog.huggingface import schemes
from infer_jax.catalog.huggingface.expressions import SUPPORTED, Expression, Name, Work
from infer_jax.catalog.huggingface.facts import REQUIRED, Facts
from infer_jax.catalog.huggingface.schemes import BF16, DTYPES, Scheme
from infer_jax.errors import InputError
from infer_jax.specs import Format

PREFIXES = ("model.", "language_model.", "backbone.")  # wrappers around "layers.0.…"
SPELLINGS = ("", "model.", "language_model.model.")  # before which a regular expression begins


@dataclass(frozen=True)
class Names:
    """Module names as configs write them: plain, with wildcards, or regular after ``re:``.

    A plain name matches itself, everything below it, and any module of which it is a run of
    whole parts ("gate" is "mlp.gate" and not "mlp.gate_proj"); ``*`` stands for anything.
    """

    plain: frozenset[str] = frozenset()
    wild: tuple[tuple[str, ...], ...] = ()  # texts between the wildcards
    regular: tuple[Expression, ...] = ()
    every: bool = False
    work: Work = field(default_factory=Work)
    source: tuple[Facts, str] = (Facts({}, "a config.json"), "names")

    @classmethod
    def of(cls, facts: Facts, key: str, names: Sequence[str]) -> "Names":
        """Compile ``names``, found under ``key``.

        Raises:
            InputError: a regular expression that is not one.
        """
        plain, wild, regular = set(), [], []
        for name in dict.fromkeys(names):
            if name.startswith("re:"):
                try:
                    regular.append(Expression(name[3:]))
                except ValueError as error:
                    allowed = f"a regular expression after re: ({error}), of {SUPPORTED}"
                    raise facts.error(key, name, allowed) from None
            elif "*" in name:
                wild.append(tuple(f"*.{bare(name)}.*".split("*")))
            else:
                plain.add(bare(name))
        return cls(frozenset(plain), tuple(wild), tuple(regular), source=(facts, key))

    def match(self, module: str) -> bool:
        """Whether ``module`` ("layers.0.mlp.up_proj") is named.

        Raises:
            InputError: the names take too long to match.
        """
        parts = module.split(".")
        ends = range(1, len(parts) + 1)
        runs = (".".join(parts[i:j]) for j in ends for i in range(j))
        if self.every or (self.plain and any(run in self.plain for run in runs)):
            return True
        try:
            if any(_contains(f".{module}.", pieces, self.work) for pieces in self.wild):
                return True
            names = [Name(f"{s}{module}", self.work) for s in SPELLINGS] if self.regular else []
            return any(one.matches(name) for one in self.regular for name in names)
        except TimeoutError:
            facts, key = self.source
            patterns = f"{len(self.wild) + len(self.regular)} patterns"
            allowed = "fewer and simpler patterns for these layers"
            raise facts.error(key, patterns, allowed) from None


def _contains(text: str, pieces: tuple[str, ...], work: Work) -> bool:
    """Whether all pieces stand in the text, one after the other: the leftmost match is the best."""
    at = 0
    for piece in pieces:
        work.spend(1)
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


EVERY_MODULE, NO_MODULE = Names(every=True), Names()


def bare(name: str) -> str:
    """A module name without the wrappers around the language model.

    >>> bare("model.language_model.layers.0.mlp")
    'layers.0.mlp'
    """
    while name.startswith(PREFIXES):
        name = name[name.index(".") + 1 :]
    return name


MIN_SHARE = 0.02  # of a layer's elements: gates of linear attention, never quantised, are fewer
MAX_GROUPS = 64  # each of which is searched for every module
# methods of one format for all modules that are not skipped, by ``quant_method``
METHODS = {
    "fp8": schemes.of_blocks,
    "fbgemm_fp8": schemes.of_blocks,
    "awq": schemes.of_packed,
    "gptq": schemes.of_packed,
    "bitsandbytes": schemes.of_bitsandbytes,
}
KNOWN_METHODS = (
    "fp8, fbgemm_fp8, modelopt, compressed-tensors, mxfp4, awq, gptq, bitsandbytes; "
    "or quant= to say it"
)


@dataclass(frozen=True)
class Quantisation:
    """The formats of a checkpoint: ``stored`` by module name, else ``unquantised``."""

    unquantised: Scheme
    stored: tuple[tuple[Names, Scheme], ...] = ()
    excluded: Names = NO_MODULE
    head: bool = False  # whether the output head is looked up like any other module
    cache: Scheme | None = None

    def scheme(self, module: str) -> Scheme:
        """The format of one module; convolutions are never converted."""
        if not module.endswith("conv1d") and not self.excluded.match(module):
            for names, scheme in self.stored:
                if names.match(module):
                    return scheme
        return self.unquantised

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
    base = _dtype(config, outer)
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
        converted = Names.of(facts, "targets", ("experts",))
        return Quantisation(base, ((converted, schemes.MXFP4),), skipped)
    if method not in METHODS:
        raise facts.error("quant_method", method, KNOWN_METHODS)
    stored = ((EVERY_MODULE, METHODS[method](facts, method)),)
    # DeepSeek-V4: experts in 4 bits, multiplied with 8-bit activations; the rest by the method
    if config.text("expert_dtype", default=None, allowed=("fp4", "fp8")) == "fp4":
        experts = Names.of(config, "expert_dtype", ("experts",))
        stored = ((experts, schemes.MXFP4_FP8), *stored)
    return Quantisation(base, stored, skipped)


def override(own: Quantisation, quant: str | None, kv_dtype: str | None) -> Quantisation:
    """``own`` with all matrices in format ``quant`` and the cache in ``kv_dtype``.

    Embedding and head stay as the checkpoint's unquantised numbers.

    Raises:
        InputError: a name that is not one of the choices.
    """
    if quant is not None:
        stored = ((EVERY_MODULE, _choice("quant", quant, schemes.CHOICES)),)
        own = replace(own, stored=stored, excluded=NO_MODULE, head=False)
    if kv_dtype not in (None, "auto"):
        own = replace(own, cache=_choice("kv_dtype", kv_dtype, schemes.CACHES, "auto"))
    return own


def _choice(option: str, name: str, known: Mapping[str, Scheme], *others: str) -> Scheme:
    name = str(name).lower()
    if name not in known:
        raise InputError("load_model", option, name, ", ".join((*known, *others)))
    return known[name]


def _dtype(config: Facts, outer: Facts) -> Scheme:
    for facts in (config, outer):
        name = facts.text("torch_dtype", "dtype", default=None, allowed=tuple(DTYPES))
        if name is not None:
            return DTYPES[name]
    config.note("torch_dtype is missing: bfloat16 is taken for what is not quantised")
    return BF16


def _modelopt(facts: Facts, base: Scheme) -> Quantisation:
    algorithm = facts.text("quant_algo", default=None)
    skipped = _names(facts, "exclude_modules", "ignore")
    cache = _cache(facts)
    if algorithm is None:
        return Quantisation(base, cache=cache)
    if algorithm != "MIXED_PRECISION":
        stored = ((EVERY_MODULE, _algorithm(facts, algorithm)),)
        return Quantisation(base, stored, skipped, True, cache)
    if "quantized_layers" not in facts:
        allowed = "a JSON object: module to quant_algo"
        raise facts.error("quantized_layers", "missing", allowed)
    layers, by_scheme = facts.require("quantized_layers"), dict[Scheme, list[str]]()
    for name, value in layers.values.items():
        layer = layers.of(name, value)
        by_scheme.setdefault(_algorithm(layer, layer.text("quant_algo")), []).append(name)
    stored = tuple((Names.of(layers, "quantized_layers", n), s) for s, n in by_scheme.items())
    return Quantisation(base, stored, skipped, True, cache)


def _algorithm(facts: Facts, name: str) -> Scheme:
    if name not in schemes.MODELOPT:
        raise facts.error("quant_algo", name, ", ".join((*schemes.MODELOPT, "MIXED_PRECISION")))
    return schemes.MODELOPT[name]


def _compressed(facts: Facts, base: Scheme) -> Quantisation:
    groups, stored = facts.require("config_groups"), []
    if len(groups.values) > MAX_GROUPS:
        count = f"{len(groups.values)} groups"
        raise facts.error("config_groups", count, f"at most {MAX_GROUPS}")
    for name, value in groups.values.items():
        group = groups.of(name, value)
        targets = group.names("targets")
        in_all = not targets or "Linear" in targets
        modules = EVERY_MODULE if in_all else Names.of(group, "targets", targets)
        stored.append((modules, schemes.of_group(group)))
    return Quantisation(base, tuple(stored), _names(facts, "ignore"), True, _cache(facts))


def _cache(facts: Facts) -> Scheme | None:
    """The format of the KV cache: an algorithm's name, or a scheme of bits and type."""
    key = "kv_cache_quant_algo" if "kv_cache_quant_algo" in facts else "kv_cache_scheme"
    if key not in facts:
        return None
    if isinstance(facts.values[key], dict):
        scheme = facts.of(key, facts.values[key])
        kind = scheme.text("type", allowed=("float", "int"))
        bits = scheme.count("num_bits", low=4, high=8)
        name = f"{'FP' if kind == 'float' else 'INT'}{bits}"
    else:
        name = facts.text(key)
    known = {"FP8": schemes.FP8, "INT8": schemes.INT8, "NVFP4": schemes.NVFP4}
    if name not in known:
        raise facts.error(key, name, ", ".join(known))
    return known[name]


def _names(facts: Facts, *keys: str) -> Names:
    return Names.of(facts, keys[0], facts.names(*keys))
