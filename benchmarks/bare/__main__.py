"""The process behind BareForkServer: reads an order a line, answers with seconds and results."""

import json
import sys

from benchmarks.bare.ranks import CONTEXT, run


def main() -> None:
    """Serve until the input ends."""
    CONTEXT.set_forkserver_preload(["torch"])
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
