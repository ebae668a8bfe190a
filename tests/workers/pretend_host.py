"""Uses the agents of a page in a process that is going to be interrupted, or killed."""

import sys

from manyranks.launcher.agents import run_agents


def main(program: str) -> None:
    """Run a program that never ends, on two pretend hosts."""
    line = ["--standalone", "--nproc-per-node", "2", "--tee", "3", program]
    run_agents({"host a": line, "host b": line}, timeout=600)


if __name__ == "__main__":
    main(sys.argv[1])
