"""What to say after a script whose ranks had nothing to do with each other: only what was seen."""

import re
from collections.abc import Sequence

from manyranks.diagnostics import advice
from manyranks.diagnostics.evidence import Evidence
from manyranks.diagnostics.parsing import first_calls
from manyranks.diagnostics.positions import position_from_stack

ALONE = (
    "No rank called init_process_group: the script ran {ranks} times, and nothing shows that the "
    "ranks met."
)
EXIT_LINE = "Rank 0 left at {place}."
LAST_LINE = "The last line that rank 0 printed: {line}"
NOT_REACHED = "No rank reached {call} in line {line}."
NO_CALL = (
    "Under torchrun a script calls dist.init_process_group() on every rank, or a library does it "
    "for the script."
)
NO_COLLECTIVE = (
    "No rank called a collective that the launch could see. Unless the ranks used send and recv, "
    "or the store, each worked alone."
)
# Libraries that choose a GPU by default, and train alone in each rank where there is none.
ON_THE_CPU = {
    "transformers": "TrainingArguments(use_cpu=True)",
    "accelerate": "Accelerator(cpu=True)",
    "lightning": 'accelerator="cpu", devices={ranks}',
}
ON_THE_CPU_IT_NEEDS = " On the CPU, {library} needs {argument}."
UNRECORDED_CALLS = re.compile(r"\b(i?send|i?recv|batch_isend_irecv|rpc\w*)\b")
JOINING = ("init_process_group", "init_device_mesh")
ASKS_FOR_LOCAL_RANK = re.compile(r"""["']--local[-_]rank["']""")
MAX_LINE_CHARS = 120  # characters shown of the last line


def explain_missing_group(ranks: Sequence[Evidence], source: str) -> str:
    """The facts about a script with this source that ended well; "" if the ranks met."""
    if not any(rank.end.joined for rank in ranks):
        return _explain_no_group(ranks, source)
    has_records = any(rank.record and rank.record["entries"] for rank in ranks)
    if has_records or UNRECORDED_CALLS.search(source):
        return ""
    return NO_COLLECTIVE + _on_the_cpu(source, len(ranks))


def _on_the_cpu(source: str, ranks: int) -> str:
    """What the first library of ON_THE_CPU that the script names must be told."""
    for library, argument in ON_THE_CPU.items():
        if re.search(rf"^\s*(?:import|from)\s+{library}\b", source, flags=re.M):
            argument = argument.format(ranks=ranks)
            return ON_THE_CPU_IT_NEEDS.format(library=library, argument=argument)
    return ""


def _explain_no_group(ranks: Sequence[Evidence], source: str) -> str:
    first = ranks[0]
    sentences = [ALONE.format(ranks=len(ranks))]
    if first.end.exit_frames:
        position = position_from_stack(first, first.end.exit_frames)
        sentences.append(EXIT_LINE.format(place=position.place))
    if calls := first_calls(source, JOINING):
        line, call = min((line, name) for name, line in calls.items())
        sentences.append(NOT_REACHED.format(call=call, line=line))
        if ASKS_FOR_LOCAL_RANK.search(source):
            sentences.append(advice.LOCAL_RANK)
    else:
        sentences.append(NO_CALL + _on_the_cpu(source, len(ranks)))
    if first.last_lines:
        sentences.append(LAST_LINE.format(line=first.last_lines[-1].strip()[:MAX_LINE_CHARS]))
    return " ".join(sentences)
