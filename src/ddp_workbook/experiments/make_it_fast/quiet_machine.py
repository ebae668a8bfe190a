"""What page 10's steps took on an idle machine, for those whose machine is too busy to measure."""

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[4] / "data" / "make_it_fast" / "quiet_machine.json"


@cache
def recorded() -> dict[str, Any]:
    """The ladder and the step on a slow network, in milliseconds."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def note() -> str:
    """What a picture says below a recorded run."""
    return (
        "This machine is too busy to measure: the times were impossible. Shown instead: a run "
        f"recorded on an idle one\n({recorded()['recorded_on']})."
    )
