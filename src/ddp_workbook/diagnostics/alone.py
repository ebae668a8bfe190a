"""What to say after a script in which no rank joined a process group: only what was seen."""

import ast
import re
from collections.abc import Sequence

from ddp_workbook.diagnostics.evidence import Evidence
from ddp_workbook.diagnostics.positions import standing

ALONE = "No rank joined a process group: the script ran {ranks} times, each time on its own."
LEFT = "It left at {place}."
LAST_LINE = "The last line of rank 0: {line}"
NOT_REACHED = "No rank reached {call} in line {line}."
NO_CALL = (
    "Under torchrun a script calls dist.init_process_group() on every rank, or a library does it "
    "for the script."
)
LOCAL_RANK = (
    "The script asks for --local_rank, which neither torchrun nor launch passes: read "
    'int(os.environ["LOCAL_RANK"]).'
)
JOINING = ("init_process_group", "init_device_mesh")
ASKS_FOR_LOCAL_RANK = re.compile(r"""["']--local[-_]rank["']""")
LONGEST = 120  # characters shown of the last line


def in_words(ranks: Sequence[Evidence], source: str) -> str:
    """The facts about a script with this source that ended well on all ranks, each on its own."""
    first = ranks[0]
    told = [ALONE.format(ranks=len(ranks))]
    if first.outcome.left:
        told.append(LEFT.format(place=standing(first, first.outcome.left).place))
    if call := _first_call(source):
        told.append(NOT_REACHED.format(call=call[1], line=call[0]))
        if ASKS_FOR_LOCAL_RANK.search(source):
            told.append(LOCAL_RANK)
    else:
        told.append(NO_CALL)
    if first.said:
        told.append(LAST_LINE.format(line=first.said[-1].strip()[:LONGEST]))
    return "\n".join([" ".join(told[:-1]), told[-1]] if first.said else [" ".join(told)])


def _first_call(source: str) -> tuple[int, str] | None:
    """Line and name of the first call that joins a group; None without one."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [(call.lineno, ast.unparse(call.func).rpartition(".")[2]) for call in calls]
    return min((found for found in named if found[1] in JOINING), default=None)
