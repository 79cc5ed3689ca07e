"""Which experiments are there? ``python -m experiments`` lists them, with a name it runs one."""

import runpy
import sys
from importlib import import_module
from pathlib import Path

NAMES = sorted(p.stem for p in Path(__file__).parent.glob("[!_]*.py"))


def main() -> None:
    """List every experiment with its question, or run the one that is named."""
    if len(sys.argv) > 1 and sys.argv[1] in NAMES:
        runpy.run_module(f"experiments.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)
        return
    print("usage: python -m experiments NAME [ARGUMENTS]\n")
    for name in NAMES:
        doc = import_module(f"experiments.{name}").__doc__ or ""
        print(f"  {name:<14} {doc.splitlines()[0] if doc else ''}")
    if len(sys.argv) > 1 and sys.argv[1] not in ("-h", "--help"):
        print(f"\nno experiment is named '{sys.argv[1]}'", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
