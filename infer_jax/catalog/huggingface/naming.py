"""The modules that a list of names in a config refers to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_jax.catalog.huggingface.expressions import KNOWN, Expression, Name, Work
from infer_jax.catalog.huggingface.facts import Facts

PREFIXES = ("model.", "language_model.", "backbone.")  # wrappers around "layers.0.…"


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
    source: tuple[Facts, str] | None = None

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
                    allowed = f"a regular expression after re: ({error}), of {KNOWN}"
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
        if self.every:
            return True
        parts = module.split(".")
        runs = range(1, len(parts) + 1)
        if self.plain and any(
            ".".join(parts[i : i + n]) in self.plain for n in runs for i in range(len(parts))
        ):
            return True
        try:
            return self._matches(module)
        except TimeoutError:
            facts, key = self.source or (Facts({}, "a config.json"), "names")
            said = f"{len(self.wild) + len(self.regular)} patterns"
            raise facts.error(key, said, "fewer and simpler patterns for these layers") from None

    def _matches(self, module: str) -> bool:
        if any(_between(pieces, f".{module}.", self.work) for pieces in self.wild):
            return True
        if not self.regular:
            return False
        spelt = (module, f"model.{module}", f"language_model.model.{module}")
        names = [Name(name, self.work) for name in spelt]
        return any(one.matches(name) for one in self.regular for name in names)


def _between(pieces: tuple[str, ...], text: str, work: Work) -> bool:
    """Whether all pieces stand in the text, one after the other: the leftmost place is the best."""
    at = 0
    for piece in pieces:
        work.spend(1)
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


EVERYTHING = Names(every=True)
NOTHING = Names()


def bare(name: str) -> str:
    """A module name without the wrappers around the language model.

    >>> bare("model.language_model.layers.0.mlp")
    'layers.0.mlp'
    """
    while name.startswith(PREFIXES):
        name = name[name.index(".") + 1 :]
    return name
