"""`infer-jax doctor`: does every device of this machine compute what it should?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import jax

from infer_jax.compiling import cache_folder
from infer_jax.doctor import ALLOWED, Verdict, examine
from infer_jax.results import Column, Notes, Result, Rows, Section
from infer_jax.verbs.progress import busy

DEVICES = (
    Column("device", "", "device"),
    Column("numbers", "", "dtype"),
    Column("rows", "", "rows"),
    Column("worst error", "relative", "worst_relative_error", lambda x: f"{x:.1e}"),
    Column("allowed", "relative", "allowed_relative_error", lambda x: f"{x:.0e}"),
    Column("agrees", "", lambda row: "yes" if row["agrees"] else "NO"),
)


@dataclass(frozen=True, repr=False)
class Verdicts(Result):
    """What every device computed, against the stored answers."""

    verdicts: Sequence[Verdict]

    @property
    def agrees(self) -> bool:
        """Whether every device computes what it should."""
        return all(v.agrees for v in self.verdicts)

    def sections(self) -> Iterator[Section]:
        """A row a device and number format, what to do, and where programs are stored."""
        yield f"jax {jax.__version__}, jaxlib {version('jaxlib')}"
        folder = cache_folder()
        cache = str(folder) if folder else None
        yield {"jax": jax.__version__, "jaxlib": version("jaxlib"), "agrees": self.agrees}
        yield {"compilation_cache": cache}
        rows = [
            {
                "device": v.device,
                "dtype": v.dtype,
                "rows": v.rows,
                "worst_relative_error": v.worst,
                "allowed_relative_error": ALLOWED[v.dtype],
                "worst_row": v.row,
                "agrees": v.agrees,
            }
            for v in self.verdicts
        ]
        yield Rows("devices", rows, DEVICES)
        wrong = [
            f"{v.device} is wrong in {v.dtype}: {v.row} is off by {v.worst:.2g}. "
            "Update jax and jaxlib, or run on another device."
            for v in self.verdicts
            if not v.agrees
        ]
        place = folder or "no folder: none is writable by this user alone"
        yield Notes([*wrong, f"Compiled programs are kept in {place}."])


def doctor() -> Verdicts:
    """Compute stored answers on every device; exit 1 where one disagrees."""
    with busy("computing the stored answers on every device"):
        return Verdicts(examine())
