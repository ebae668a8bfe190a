"""Attempts with every fault: a verdict in words, the right cause, in time, and no leftovers.

Each is an attempt at the smallest exercise, by the name of what is wrong with it.
"""

import functools
import random
import re
import sys
import time
from textwrap import indent

import numpy
import pytest
import torch
import torch.distributed as dist

from ddp_workbook.judging import on_ranks
from ddp_workbook.judging.catalogue import find
from ddp_workbook.judging.guard import State
from ddp_workbook.judging.judge import examine
from ddp_workbook.judging.verdict import NOT_YET, SOLVED, UNDECIDED, Verdict
from tests.attempts import DEF, IMPORTS, RIGHT, as_text, attempts_in_a_folder, cell  # noqa: F401
from tests.leaks import descriptors, no_rank_left, wait_until  # noqa: F401 (a fixture)

EXERCISE = find("mean_over_ranks")
CPU_S, IDLE_S = 0.5, 0.7  # seconds of evidence that make a hang here
MAX_VERDICT_S = 320.0  # seconds for any verdict: a check gives up after 300 on a busy machine


def judge_in_time(code: str) -> tuple[Verdict, str]:
    """The verdict, and its text in one line. It must come in time, and never with the solution."""
    start = time.monotonic()
    verdict = examine(EXERCISE, code)
    assert time.monotonic() - start < MAX_VERDICT_S
    text = as_text(verdict)
    assert [line for line in solution_lines(code) if line in text] == []
    assert "Traceback" not in verdict.title and len(repr(verdict)) < 12_000
    return verdict, text


def solution_lines(code: str) -> list[str]:
    """Lines of the solution that are not the reader's own."""
    lines = EXERCISE.solution.splitlines()
    return [line.strip() for line in lines if line.strip() not in code and len(line.strip()) > 8]


@pytest.fixture
def short_limits(monkeypatch):
    """Less evidence than a reader's check wants."""
    monkeypatch.setattr(on_ranks, "CPU_S", CPU_S)
    monkeypatch.setattr(on_ranks, "IDLE_S", IDLE_S)


ON_PUSH = pytest.mark.push("attempts with every fault")


def cases(**attempts: tuple):
    """Attempts and the words that their verdicts must hold, as parameters of a test.

    `make test` has the first two of a kind, a push all of them.
    """
    rows = [
        pytest.param(code, words, id=name, marks=() if number < 2 else ON_PUSH)
        for number, (name, (code, *words)) in enumerate(attempts.items())
    ]
    return pytest.mark.parametrize(("code", "words"), rows)


def refusal_text(code: str, words: list[str]) -> str:
    """The text of a verdict that must be "not yet", hold the words, and say where to look."""
    verdict, text = judge_in_time(code)
    assert verdict.kind == NOT_YET, text
    assert [word for word in words if word not in text] == [], f"\n{verdict!r}"
    assert "look at" in text and verdict.rows[-1][1]
    return text


# No Python


@cases(
    colon=(cell("return 1", "def mean_over_ranks(value)"), "line 6", "expected ':'"),
    bracket=(cell("total = torch.tensor((value)\nreturn 1"), "line 7", "never closed", "bracket"),
    quote=(cell("x = 'abc\nreturn 1"), "line 7", "unterminated string", "quotation mark"),
    margin=(cell("x = 1") + "  return x\n", "line 8", "unindent", "The indentation of this line"),
    tabs=(
        cell("x = 1") + "\treturn x\n",
        "line 8",
        "tabs and spaces",
        "The indentation of this line",
    ),
    percent=(f"%timeit 1\n{cell(RIGHT)}", "line 2", "may hold only Python", "%timeit 1"),
    late_percent=(f"{cell(RIGHT)}\n%load_ext x\n", "line 11", "may hold only Python"),
    shell=(f"!ls\n{cell(RIGHT)}", "line 2", "may hold only Python", "!ls"),
    shell_inside=(cell("x = !ls\nreturn 1"), "line 7", "may hold only Python"),
    question=(f"{cell(RIGHT)}\ndist.all_reduce?\n", "line 11", "may hold only Python"),
    other_cell=(f"%%time\n{cell(RIGHT)}", "line 2", "may hold only Python"),
    nul=(cell("x = '\0'\nreturn 1"), "null bytes", "Was it pasted?"),
    half_a_character=(cell("x = '\ud800'\nreturn 1"), "surrogates", "Was it pasted?"),
    smart_quotes=(cell("x = “abc”\nreturn 1"), "line 7", "U+201C", "Was it pasted?"),
    hard_space=(cell("x =\u00a01\nreturn 1"), "line 7", "U+00A0", "Was it pasted?"),
    deep=(cell("return " + "-" * 50_000 + "1"), "nested too deep"),
    brackets=(cell("return " + "(" * 300 + "1" + ")" * 300), "line 7", "too many nested"),
    line_separator=(f"# a\u2028b\n{cell('return (value')}", "line 8", "never closed"),
    windows=(cell("x = (\nreturn x").replace("\n", "\r\n"), "line 7", "never closed"),
)
def test_what_is_no_python_is_shown_with_its_line(code, words):
    assert "is not valid Python" in refusal_text(code, words)


def test_the_mark_under_a_line_stands_where_the_error_is():
    verdict, _ = judge_in_time(cell("total = torch.tensor((value)\nreturn 1"))
    line, mark, _ = verdict.rows[0][1].splitlines()
    assert mark.index("^") == line.index("((")


# Another function


@cases(
    misspelt=(
        cell(RIGHT, "def mean_over_rank(value):"),
        "it defines mean_over_rank",
        "left margin",
    ),
    inside_another=(
        "def outer():\n" + indent(cell("return 1"), "    "),
        "it defines outer",
        "def mean_over_ranks(value)",
    ),
    empty=("", "it defines no function", "def mean_over_ranks(value)"),
    blank=(" \n\n", "it defines no function"),
    only_a_comment=("# later\n", "it defines no function"),
    deleted=(cell(RIGHT) + "del mean_over_ranks\n", "it defines no function"),
    number=("mean_over_ranks = 3\n", "mean_over_ranks is 3, which is not a function"),
    a_class=("class mean_over_ranks:\n    pass\n", "is a class", "def mean_over_ranks(value)"),
    asynchronous=(
        cell(RIGHT, f"async {DEF}"),
        "an async function",
        "what would await the function?",
    ),
    generator=(cell("yield value"), "it contains a yield", "the line with yield"),
    no_argument=(cell(RIGHT, "def mean_over_ranks():"), "cannot be called like this", "too many"),
    one_more=(cell(RIGHT, "def mean_over_ranks(value, group):"), "missing", "'group'"),
    by_keyword=(cell(RIGHT, "def mean_over_ranks(*, value):"), "cannot be called like this", "def"),
)
def test_what_is_not_the_function_is_named(code, words):
    refusal_text(code, words)


DECORATED = "def twice(function):\n    return lambda *args: function(*args)\n\n\n@twice\n"
WRAPPED = cell(RIGHT, "def f(one, value):") + (
    "import functools\nmean_over_ranks = functools.partial(f, 1)\n"
)


@cases(
    another_argument=(cell(RIGHT.replace("value", "x"), "def mean_over_ranks(x):"),),
    any_arguments=(cell(RIGHT.replace("value", "args[0]"), "def mean_over_ranks(*args):"),),
    a_default=(cell(RIGHT, "def mean_over_ranks(value, more=None):"),),
    decorated=(cell(RIGHT, before=DECORATED),),
    no_grad=(cell(RIGHT, before="@torch.no_grad()\n"),),
    assigned=(WRAPPED,),
    tabs=(cell(RIGHT).replace("    ", "\t"),),
    byte_order_mark=("\ufeff" + cell(RIGHT),),
    other_alphabets=(cell(f"größe = '日本語 ☃'\nprint(größe)\n{RIGHT}"), "日本語 ☃"),
    long=(cell("\n".join(f"x{n} = {n}" for n in range(10_000)) + f"\n{RIGHT}"),),
    own_generator=(cell(f"torch.rand(3, generator=torch.Generator())\n{RIGHT}"),),
    seed_set_back=(cell(f"with torch.random.fork_rng():\n    torch.manual_seed(1)\n{RIGHT}"),),
    called_in_the_cell=(cell(RIGHT) + "print(mean_over_ranks(1.0))\n", "1.0"),
    prints=(cell(f"print('here is', dist.get_rank())\n{RIGHT}"), "[rank 3] here is 3"),
)
def test_a_right_function_in_another_form_passes(code, words):
    verdict, text = judge_in_time(code)
    assert verdict.kind == SOLVED, text
    assert [word for word in words if word not in text] == []


# An error

BROKEN_EXCEPTION = "class Evil(Exception):\n    def __str__(self):\n        raise ValueError\n\n\n"


@pytest.mark.long
@cases(
    name=(cell("return vlaue"), "NameError", "'vlaue'", "your line 7", "spelled right"),
    name_of_numpy=(cell("return np.mean(value)"), "'np'", "knows only what it imports"),
    the_stub=(
        cell("x = 1\nraise NotImplementedError  # TODO"),
        "NotImplementedError",
        "your line 8",
        "replace it by your lines",
    ),
    module=(f"import numpyy\n{cell(RIGHT)}", "numpyy", "your line 2", "is the module installed"),
    recursion=(cell("return mean_over_ranks(value)"), "RecursionError", "What ends the recursion"),
    own_assert=(cell("return value") + "assert mean_over_ranks(1.0) == 2\n", "If it is your own"),
    broken_text=(
        cell("raise Evil('x')", before=BROKEN_EXCEPTION),
        "raises Evil",
        "cannot be shown",
    ),
    long_text=(cell("raise ValueError('x' * 10_000_000)"), "raises ValueError", "your line 7"),
    interrupt=(cell("raise KeyboardInterrupt"), "KeyboardInterrupt", "your line 7"),
    keyboard=(cell("return float(input())"), "EOFError", "no keyboard"),
    memory=(cell("return torch.ones(10**13)"), "can't allocate memory", "How large is"),
    memory_of_python=(cell("return [0] * 10**13"), "MemoryError", "How large is"),
    itself=(cell("dist.recv(torch.zeros(1), dist.get_rank())"), "the other side of this call"),
    group_again=(cell("dist.init_process_group()"), "twice", "The group exists when"),
    late_line=(
        cell("\n".join(f"x{n} = {n}" for n in range(9990)) + "\nreturn vlaue"),
        "your line 9997",
    ),
    old_margin=(f"\x0c\n{cell('return vlaue')}", "your line 8: return vlaue"),
)
def test_an_error_is_named_with_its_line_and_where_to_look(code, words):
    refusal_text(code, words)


def test_an_error_on_one_rank_is_that_ranks():
    text = refusal_text(
        cell(f"if dist.get_rank() == 1:\n    raise ValueError('alone')\n{RIGHT}"), []
    )
    assert "raises ValueError at 4 ranks" in text and "rank 1 your line 8: raise" in text


# The end of the process


@cases(
    exit=(cell("import sys\nsys.exit(3)"), "your line 8: sys.exit(3)", "ends the whole process"),
    exit_0=(cell("import sys\nsys.exit()"), "your line 8: sys.exit()", "ends the whole process"),
    quit=(cell("quit()"), "your line 7: quit()", "ends the whole process"),
    exit_outside=(f"import sys\nsys.exit()\n{cell(RIGHT)}", "your line 3", "runs to its end"),
    os_exit=(cell("import os\nos._exit(0)"), "exit code 0 without returning", "os._exit"),
    os_exit_outside=(f"import os\nos._exit(5)\n{cell(RIGHT)}", "exit code 5", "os._exit"),
    killed=(cell("import os\nos.kill(os.getpid(), 9)"), "SIGKILL", "sends the signal"),
    ended=(cell("import os\nos.kill(os.getpid(), 15)"), "SIGTERM", "os.kill"),
    abort=(cell("import os\nos.abort()"), "SIGABRT", "your line 8: os.abort()"),
    crash=(cell("import ctypes\nctypes.string_at(0)"), "SIGSEGV", "your line 8", "compiled code"),
    at_exit=(cell(f"import atexit, os\natexit.register(os._exit, 3)\n{RIGHT}"), "exit code 3"),
    one_rank=(
        cell(f"import os\nif dist.get_rank() == 1:\n    os._exit(3)\n{RIGHT}"),
        "at 4 ranks",
        "rank 1 exited with exit code 3",
    ),
)
def test_an_attempt_that_ends_its_process(code, words):
    refusal_text(code, words)


# No end

IGNORES_SIGNALS = (
    "import signal, time\nfor one in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):\n"
    + ("    signal.signal(one, signal.SIG_IGN)\ntime.sleep(1000)")
)


@pytest.mark.long
@cases(
    loop_outside=(cell(RIGHT, before="while True:\n    pass\n\n\n"), "line 6", "ends the loop"),
    one_rank=(
        cell(f"while dist.get_rank() == 1:\n    pass\n{RIGHT}"),
        "rank 0 waits in all_reduce",
        "rank 1 is at your line",
        "Rank 1 did not reach it",
        "ends the loop",
    ),
    sleep=(cell("import time\ntime.sleep(1000)"), "does not end", "line 8", "wait for"),
    sleep_outside=(cell(RIGHT, before="import time\ntime.sleep(1000)\n"), "line 7", "wait for"),
    in_c=(cell("sum(iter(int, 1))"), "does not end", "line 7: sum(iter", "how long does it"),
    prints=(cell("while True:\n    print('hello')"), "does not end", "ends the loop", "not shown"),
    subprocess=(cell("import subprocess\nsubprocess.run(['sleep', '100'])"), "line 8: subprocess"),
    catches_all=(
        cell("import time\nwhile 1:\n    try:\n        time.sleep(1)\n    except BaseException: 0"),
        "does not end",
        "ends the loop",
    ),
    ignores_signals=(cell(IGNORES_SIGNALS), "does not end", "line 10: time.sleep(1000)"),
    stopped=(cell("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"), "does not answer"),
    at_exit=(
        cell(f"import atexit, time\natexit.register(time.sleep, 100)\n{RIGHT}"),
        "What runs outside",
    ),
    two_collectives=(
        cell(
            "x = torch.zeros(1)\ndist.broadcast(x, 0) if dist.get_rank() else dist.barrier()\n"
            "return value"
        ),
        "waits in barrier",
        "waits in broadcast",
        "differs between the ranks",
        "same collectives in the same order",
    ),
    two_shapes=(
        cell("dist.all_reduce(torch.zeros(dist.get_rank() + 1))\nreturn value"),
        "float [1]",
        "float [2]",
        "different shapes or dtypes",
    ),
    no_send=(
        cell("dist.recv(torch.zeros(1))\nreturn value"),
        "waits in recv",
        "Each send needs a recv",
    ),
    clean_up=(
        cell(
            "try:\n    if dist.get_rank() == 1:\n        raise ValueError('rank 1 is broken')\n"
            "    dist.all_reduce(torch.zeros(1))\nfinally:\n    dist.barrier()\nreturn value"
        ),
        "Rank 1 is handling ValueError: rank 1 is broken",
        "raised at your line 9",
        "must not wait for ranks that do not get there",
    ),
    own_source=(
        cell("x = torch.tensor(value)\ndist.broadcast(x, dist.get_rank())\nreturn x.item()"),
        "waits in broadcast",
        "agree on its arguments",
    ),
    not_waited_for=(
        cell(
            "if dist.get_rank() == 0:\n    dist.all_reduce(torch.zeros(1), async_op=True).wait()\n"
            "else:\n    import time; time.sleep(100)\nreturn value"
        ),
        "hangs at 4 ranks",
        "rank 0 waits",
        "Ranks 1, 2 and 3 did not reach it",
    ),
)
def test_an_attempt_that_does_not_end_is_stopped_and_told_where_it_stood(code, words, short_limits):
    """With the evidence: nothing moves, or processor time is used up."""
    assert re.search("nothing has moved for|of processor time", refusal_text(code, words))


@cases(
    one_rank=(
        cell("x = torch.tensor(value)\nif dist.get_rank() == 0:\n    dist.all_reduce(x)\nreturn x"),
        "rank 1 has returned without it",
        "Is it under an `if`, or after a `return`?",
    ),
    once_more=(
        cell("for i in range(4 - dist.get_rank()):\n    dist.barrier()\nreturn value"),
        "rank 3 has returned without it",
        "barrier",
    ),
    monitored=(
        cell(
            "from datetime import timedelta\nif dist.get_rank() == 0:\n"
            "    dist.monitored_barrier(timeout=timedelta(seconds=0.2))\nreturn value + 0"
        ),
        "rank 0 waits in monitored_barrier",
        "needs every rank of its group",
    ),
)
def test_a_rank_that_waits_for_one_that_has_gone(code, words):
    verdict, text = judge_in_time(code.replace("return value + 0", "return 4.0"))
    assert re.search("all ranks wait, and nothing has moved|a rank waits for another", text), text
    assert [word for word in words if word not in text] == [], repr(verdict)


def test_an_endless_loop_is_told_by_the_processor_time_that_it_used(monkeypatch):
    monkeypatch.setattr(on_ranks, "CPU_S", 0.5)
    text = refusal_text(
        cell("while True:\n    pass"), ["at 4 ranks", "your line 7", "ends the loop"]
    )
    used = float(re.search(r"after ([\d.]+) s of processor time", text)[1])
    assert on_ranks.CPU_S <= used < 10 * on_ranks.CPU_S


def test_a_slow_answer_is_no_hang(monkeypatch, capsys):
    """Sixteen readers on two cores: the check takes long, says so, and is right."""
    patient = functools.partial(on_ranks.HangLimits, slow=0.2)
    monkeypatch.setattr(on_ranks, "HangLimits", patient)
    verdict, text = judge_in_time(cell(f"import time\ntime.sleep(0.4)\n{RIGHT}"))
    assert verdict.kind == SOLVED, text
    assert capsys.readouterr().out == f"{on_ranks.SLOW_MESSAGE}\n"


def test_a_machine_that_is_too_busy_gives_no_lesson(monkeypatch):
    monkeypatch.setattr(
        on_ranks, "HangLimits", functools.partial(on_ranks.HangLimits, patience=0.5)
    )
    verdict, text = judge_in_time(cell(f"import time\ntime.sleep(1)\n{RIGHT}"))
    assert verdict.kind == UNDECIDED
    assert "too busy to tell" in text and "Your answer could not be judged" in text


# What it prints


@pytest.mark.push("floods of output")
@cases(
    lines=(cell("for i in range(50_000):\n    print('line', i)\nreturn 0"), "line 49999"),
    one_line=(cell("print('x' * 30_000_000)\nreturn 0"), "… (2,0", "characters)"),
    errors=(cell("import sys\nfor i in range(50_000):\n    print(i, file=sys.stderr)"), "49999"),
    no_newline=(cell("for i in range(200_000):\n    print('x', end='')\nreturn 0"), "characters)"),
    closed=(cell("import sys\nsys.stdout.close()\nreturn 0"), "0 on every rank"),
)
def test_a_flood_of_output_is_cut_and_does_not_hide_the_verdict(code, words):
    text = refusal_text(code, ["called", "required", *words])
    assert len(text) < 12_000


# The process


@cases(
    seed=(cell(f"torch.manual_seed(1)\n{RIGHT}"), "the seed of torch", "torch.Generator"),
    seed_outside=(
        cell(RIGHT, before="torch.manual_seed(1)\n"),
        "your cell, from top to bottom",
        "the seed of torch",
    ),
    seed_of_python=(cell(f"import random\nrandom.seed(1)\n{RIGHT}"), "Python's random"),
    seed_of_numpy=(cell(f"import numpy\nnumpy.random.seed(1)\n{RIGHT}"), "NumPy's random"),
    numpy_outside=(cell(RIGHT, before="import numpy\nnumpy.random.seed(1)\n"), "NumPy's random"),
    grad_mode=(
        cell(f"torch.set_grad_enabled(False)\n{RIGHT}"),
        "is_grad_enabled",
        "without restoring it",
    ),
    dtype=(cell(f"torch.set_default_dtype(torch.float64)\n{RIGHT}"), "get_default_dtype"),
    device=(cell("torch.set_default_device('meta')\nreturn value"), "get_default_device"),
    group=(cell("dist.destroy_process_group()\nreturn value"), "process group", "made the group"),
    other_functions=(
        cell(RIGHT, before="dist.all_reduce = lambda *args: None\n"),
        "it changed torch.distributed.all_reduce",
        "Which line replaces it",
    ),
)
def test_what_belongs_to_the_whole_process_is_left_alone(code, words):
    refusal_text(code, [*words, "belongs to the whole process"])


def test_another_group_in_the_place_of_the_first_is_a_change():
    def make_group():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    make_group()
    try:
        before = State()
        assert before.differences(State()) == []
        dist.destroy_process_group()
        make_group()
        assert before.differences(State()) == ["the process group"]
    finally:
        dist.destroy_process_group()


@cases(
    thread=(
        cell(f"import threading\nthreading.Thread(target=threading.Event().wait).start()\n{RIGHT}"),
    ),
    subprocess=(cell(f"import subprocess\nsubprocess.Popen(['sleep', '4321'])\n{RIGHT}"),),
    session=(
        cell(
            f"import subprocess as s\ns.Popen(['sleep', '4321'], start_new_session=True)\n{RIGHT}"
        ),
    ),
    fork=(cell(f"import os\nos.fork()\n{RIGHT}"),),
)
def test_threads_and_processes_that_stay_are_ended(code, words):
    """The fixture `no_rank_left` looks for them."""
    open_before = len(descriptors())
    verdict, text = judge_in_time(code)
    assert verdict.kind == SOLVED, text
    assert wait_until(lambda: len(descriptors()) <= open_before + 1)


# What comes back

LOCK = "import threading\nreturn threading.Lock()"
BROKEN_VALUE = "class Evil:\n    def __eq__(self, other):\n        raise ValueError\n\n\n"
EXITS_WHEN_PICKLED = """class Deadly:
    def __reduce__(self):
        return exec, ("import os; os._exit(1)",)


"""


@cases(
    nothing=(cell("dist.barrier()"), "None on every rank", "return its result, on every path"),
    lock=(cell(LOCK), "an object of type lock", "cannot leave its process"),
    anonymous=(cell("return lambda: value"), "the function <lambda>", "only your cell knows"),
    itself=(cell("return mean_over_ranks"), "the function mean_over_ranks"),
    own_class=(cell("return Evil()", before=BROKEN_VALUE), "an object of class Evil"),
    deadly=(cell("return Deadly()", before=EXITS_WHEN_PICKLED), "an object of class Deadly"),
    deep=(cell("x = []\nfor i in range(10**5):\n    x = [x]\nreturn x"), "lists within lists"),
    work=(
        cell("return dist.all_reduce(torch.zeros(1), async_op=True)"),
        "still at work when your function returned",
        "Which line waits for the ones",
    ),
    huge=(cell("return torch.zeros(20_000_000)"), "more than 32 MB"),
    long=(cell("return list(range(10**5))"), "[0, 1, 2", "2.825"),
    two_numbers=(cell("return torch.tensor([value, 1])"), "tensor([4.5, 1]) on rank 0"),
    no_numbers=(cell("return torch.zeros((), device='meta')"), "without numbers"),
    table=(
        cell("import pandas\nreturn pandas.DataFrame({'a': [value]})"),
        "This is a DataFrame; a float is asked for",
    ),
    text=(cell("return '<b>4</b>'"), "'<b>4</b>' on every rank", "2.825"),
    no_number=(cell("return float('nan')"), "nan on every rank"),
)
def test_whatever_comes_back_is_told_in_words(code, words):
    refusal_text(code, words)


def test_a_right_answer_with_an_old_name_is_told_nothing_about_the_new_one():
    """torch 2.13 warns of all_gather_into_tensor, on each rank."""
    body = """everyone = torch.empty(dist.get_world_size())
dist.all_gather_into_tensor(everyone, torch.tensor([float(value)]))
return everyone.mean().item()
"""
    verdict, text = judge_in_time(cell(body))
    assert verdict.kind == SOLVED and "printed" not in text


# The kernel


def test_the_checks_leave_the_kernels_own_state_alone():
    def state():
        return torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state())

    before, modules, folders = state(), set(sys.modules), list(sys.path)
    judge_in_time(cell(RIGHT))
    judge_in_time(cell(f"torch.manual_seed(1)\n{RIGHT}"))
    assert state() == before
    assert "mean_over_ranks" not in set(sys.modules) - modules and sys.path == folders


def test_an_attempt_after_all_that_is_judged_as_ever():
    start = time.monotonic()
    verdict, text = judge_in_time(cell(RIGHT))
    assert verdict.kind == SOLVED and time.monotonic() - start < 25
    assert re.fullmatch(r"mean_over_ranks is solved: .* at 1 to 4 ranks", text)
