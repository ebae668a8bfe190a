"""A strict reader of `#PBS` lines, for there is no OpenPBS here that would refuse a misspelt one.

    for fault in faults(Path("fully_sharded.pbs").read_text()):
        print(fault)  # line 5: ncpu is no resource of a chunk; did you mean ncpus?

Slurm's qsub, which the tests submit to, ignores what it does not know: `ngpus` in a chunk, `-W
depend`, every misspelt resource. What stands here was taken from the manual pages qsub(1B) and
pbs_resources(7B) of OpenPBS. A site can define resources of its own; our scripts need none.
"""

import difflib
import re
import shlex
from collections.abc import Callable, Iterator

PREFIX = "#PBS"
ALMOST = re.compile(r"\s*#+\s*PBS\b|#PBS-", re.IGNORECASE)  # read as a comment
FLAGS = set("fhIVXz")
WITH_VALUE = set("aAcCeJjklMmNopPqrRSuvW")
NOT_IN_A_SCRIPT = {"C", "f", "G", "z"}

COUNT, WORD = re.compile(r"\d+"), re.compile(r"[\w.:/@-]+")
AT_LEAST_ONE = re.compile(r"[1-9]\d*")
SIZE = re.compile(r"\d+([kmgtp]?[bw])?", re.IGNORECASE)
TIME = re.compile(r"\d+|(\d+:)?[0-5]?\d:[0-5]?\d(\.\d+)?")
TRUTH = re.compile(r"true|false|[tfyn]|[01]", re.IGNORECASE)

CHUNK = {
    "ncpus": AT_LEAST_ONE,
    "ngpus": COUNT,
    "mpiprocs": AT_LEAST_ONE,
    "ompthreads": AT_LEAST_ONE,
    "mem": SIZE,
    "vmem": SIZE,
    "naccelerators": COUNT,
    "accelerator": TRUTH,
    "accelerator_model": WORD,
    "accelerator_memory": SIZE,
    "arch": WORD,
    "host": WORD,
    "vnode": WORD,
    "nchunk": AT_LEAST_ONE,
}
WHOLE_JOB = {
    "walltime": TIME,
    "min_walltime": TIME,
    "max_walltime": TIME,
    "cput": TIME,
    "pcput": TIME,
    "file": SIZE,
    "pmem": SIZE,
    "pvmem": SIZE,
    "nice": re.compile(r"-?\d+"),
    "software": WORD,
}
ARRANGEMENTS = {"free", "pack", "scatter", "vscatter"}
SHARING = {"excl", "shared", "exclhost"}
ATTRIBUTES = {
    "block": TRUTH,
    "depend": re.compile(
        r"((after|before)(ok|notok|any|start)?(:[\w.\[\]-]+)+|on:\d+|runone:[\w.\[\]-]+)(,.+)?"
    ),
    "group_list": WORD,
    "release_nodes_on_stageout": TRUTH,
    "run_count": COUNT,
    "sandbox": re.compile("HOME|PRIVATE"),
    "stagein": re.compile(r".+@.+:.+"),
    "stageout": re.compile(r".+@.+:.+"),
    "umask": re.compile("[0-7]{1,4}"),
}
VALUES = {  # of the options that have a form of their own
    "j": re.compile("oe|eo|n"),
    "k": re.compile("n|[oed]{1,3}"),
    "r": re.compile("[yn]"),
    "R": re.compile("[oe]{1,2}"),
    "m": re.compile("n|[abe]{1,3}"),
    "N": re.compile(r"[A-Za-z0-9][\w.+-]{0,14}"),  # newer ones allow 236 letters, older ones 15
    "p": re.compile(r"[+-]?\d{1,4}"),
    "J": re.compile(r"\d+-\d+(:\d+)?(%\d+)?"),
    "a": re.compile(r"(\d\d){2,6}(\.\d\d)?"),
}


def faults(script: str) -> list[str]:
    """What is wrong with the `#PBS` lines of a script: a sentence each, with the line's number."""
    found, asked, commands_begin = [], {}, 0
    for number, line in enumerate(script.splitlines(), start=1):
        if line.startswith(PREFIX + " "):
            if commands_begin:
                words = [f"comes after the first command, in line {commands_begin}: it is ignored"]
            else:
                words = of_directive(line.removeprefix(PREFIX), asked, number)
            found += [f"line {number}: {fault}" for fault in words]
        elif ALMOST.match(line) and not re.match(r"##+PBS ", line):  # two: switched off on purpose
            found.append(f"line {number}: {line.split()[0]!r} is a comment; write {PREFIX!r}")
        elif line.strip() and not line.startswith("#"):
            commands_begin = commands_begin or number
    return found + of_all(asked)


def of_directive(text: str, asked: dict[str, int], number: int) -> Iterator[str]:
    """Faults of one line. It adds to `asked` which resources stand in which line."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        yield str(error).lower()
        return
    while words:
        word = words.pop(0)
        if not re.fullmatch(r"-[A-Za-z].*", word):
            yield f"{word!r} is no option, and a comment is not possible behind one"
            return
        option, value = word[1], word[2:]
        if option in FLAGS:
            words[:0] = [f"-{value}"] if value else []
        elif option in WITH_VALUE:
            if not value and not words:
                yield f"-{option} needs a value"
                return
            yield from of_option(option, value or words.pop(0), asked, number)
        if option in NOT_IN_A_SCRIPT:
            yield f"-{option} is for the command line alone"
        elif option not in FLAGS | WITH_VALUE:
            yield f"qsub has no option -{option}"
            return


def of_option(option: str, value: str, asked: dict[str, int], number: int) -> Iterator[str]:
    """Faults of an option's value."""
    if option == "l":
        for request in value.split(","):
            name, _, wanted = request.partition("=")
            if name in asked:
                yield f"{name} stands in line {asked[name]} already"
            asked.setdefault(name, number)
            yield from of_request(name, wanted)
    elif option == "W":
        name, _, wanted = value.partition("=")
        yield from of_value(name, wanted, ATTRIBUTES, "attribute for -W")
    elif option in VALUES and not VALUES[option].fullmatch(value):
        yield f"-{option} cannot be {value!r}"


def of_request(name: str, wanted: str) -> Iterator[str]:
    """Faults of one resource of `-l`."""
    if name == "select":
        for chunk in wanted.split("+"):
            yield from of_chunk(chunk)
    elif name == "place":
        kinds: list[Callable[[str], bool]] = [
            ARRANGEMENTS.__contains__,
            SHARING.__contains__,
            lambda part: part.startswith("group="),
        ]
        parts = wanted.split(":")
        for part in parts:
            if not any(kind(part) for kind in kinds):
                known = ARRANGEMENTS | SHARING
                yield f"place knows no {part!r}{near(part, known)}"
        if any(sum(map(kind, parts)) > 1 for kind in kinds):
            yield f"place={wanted} says one thing twice"
    elif name in CHUNK or name in ("nodes", "ppn"):
        yield f"{name} belongs into select, as in select=2:ncpus=4:ngpus=1"
    else:
        known = {**WHOLE_JOB, "select": WORD, "place": WORD}
        yield from of_value(name, wanted, known, "resource of a whole job")


def of_chunk(chunk: str) -> Iterator[str]:
    """Faults of one chunk of a select."""
    parts = re.split(r":(?=\D)", chunk)  # the colons of a time are none of the chunk's
    if re.fullmatch(r"\d+", parts[0]):
        if int(parts.pop(0)) == 0:
            yield "select=0 asks for nothing"
        if not parts:
            yield f"select={chunk} does not say what a chunk is; add ncpus at least"
    names = [part.partition("=")[0] for part in parts]
    for part in parts:
        name, _, value = part.partition("=")
        if name in WHOLE_JOB:
            yield f"{name} belongs to the whole job: -l {part}"
        else:
            yield from of_value(name, value, CHUNK, "resource of a chunk")
    if len(set(names)) < len(names):
        yield f"{':'.join(parts)} names a resource twice"


def of_value(name: str, value: str, known: dict[str, re.Pattern], what: str) -> Iterator[str]:
    """Faults of `name=value`, where `known` says which names there are, and what they can be."""
    if name not in known:
        yield f"{name} is no {what}{near(name, known)}"
    elif not known[name].fullmatch(value):
        yield f"{name} cannot be {value!r}"


def of_all(asked: dict[str, int]) -> list[str]:
    """Faults of the lines together."""
    return [] if "walltime" in asked else ["no walltime: the site's default may be minutes or days"]


def near(name: str, known) -> str:
    """The question whether another name was meant, or nothing."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
