"""``ij.deploy``: writes the folder that starts a plan."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from infer_jax.errors import InputError
from infer_jax.results import Column, Notes, Result, Rows, Section
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option


@dataclass(frozen=True, repr=False)
class DeployResult(Result):
    """A folder that was written, the plan that it starts, and what each of its files is."""

    rows_key = "files"

    folder: str
    plan: str
    kinds: Mapping[str, str]

    def sections(self) -> Iterator[Section]:
        """The files."""
        yield f"{self.folder} starts {self.plan}."
        yield {"folder": self.folder, "plan": self.plan}
        rows = [{"file": name, "what": what} for name, what in self.kinds.items()]
        yield Rows("files", rows, (Column("file", "", "file"), Column("what it is", "", "what")))
        yield Notes(["README.md says how each is started, and what is missing."])


@verb
def deploy(
    plan: Annotated[str | os.PathLike[str], Option.of("PLAN.json", by_place=True)],
    *,
    out: Annotated[str | os.PathLike[str], Option.of("FOLDER")],
) -> DeployResult:
    """Write a folder that starts a plan: script, Compose, Kubernetes, Helm, Dynamo, benchmark.

    Args:
        plan: What `infer-jax plan --json` printed, in a file.
        out: The folder to write, new or empty.

    Raises:
        InputError: a file that holds no plan, a plan that no engine starts, a folder that holds
            something.
    """
    from infer_jax.catalog.files import check_folder
    from infer_jax.catalog.foreign import read_json
    from infer_jax.rollouts import Rollout, write
    from infer_jax.verbs.rollout import with_loads

    check_folder(out)
    fields = read_json(plan).get("deployment")
    if fields is None:
        allowed = "what `infer-jax plan --json` prints, of a plan within the limits"
        raise InputError(str(plan), "deployment", None, allowed)
    rollout = with_loads(Rollout.of(fields))
    return DeployResult(os.fspath(out), rollout.title, write(rollout, out))
