"""The modules that a list of names in a config refers to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_jax.catalog.huggingface.expressions import SUPPORTED, Expression, Name, Work
from infer_jax.catalog.huggingface.facts import Facts

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
