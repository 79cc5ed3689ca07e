"""Which experiments are there? ``python -m experiments`` lists them, with a name it runs one."""

import runpy
import sys
from importlib import import_module
from pathlib import Path

NAMES = sorted(p.stem for p in Path(__file__).parent.glob("[!_]*.py"))

if __name__ == "__main__":
    name = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if name in NAMES:
        runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)
    else:
        print("usage: python -m experiments NAME [ARGUMENTS]\n")
        for one in NAMES:
            doc = import_module(f"experiments.{one}").__doc__ or ""
            print(f"  {one:<14} {doc.splitlines()[0] if doc else ''}")
        if name not in ("-h", "--help"):
            print(f"\nno experiment is named '{name}'", file=sys.stderr)
            sys.exit(2)
