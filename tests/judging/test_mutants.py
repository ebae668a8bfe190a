"""Every solution, changed at one place by a program: its exercise's check must refuse the change.

Wrong answers are thought up by people. These are not: a statement deleted, + for -, < for <=, an
argument dropped, a constant off by one, a condition negated, a loop without its first round. What
survives is either equivalent to the solution, and stands in SURVIVORS with the reason, or shows
something that no case looks at. What would only end in a NameError is left out.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest

import pytest

from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import Exercise, names
from ddp_workbook.judging.judge import judge
from ddp_workbook.judging.verdict import SOLVED
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)

pytestmark = pytest.mark.push("mutants")

MAX_MUTANTS = 8  # mutants of a solution; each costs a check, and one that hangs a few seconds
OPPOSITES = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
SURVIVORS = {  # exercise -> mutant -> why it is as right as the solution
    "broadcast_parameters": {
        "exchanged: (*model.parameters(), *model.buffers()) -> "
        "(*model.buffers(), *model.parameters())": "any order does that is the same on all ranks",
    },
    "once_per_run": {
        "argument: dist.broadcast_object_list(told, src=0) -> dist.broadcast_object_list(told)": (
            "src is 0 where nothing is said"
        ),
    },
    "predict_scaling": {
        "argument: np.linalg.lstsq(columns, seconds, rcond=None) -> "
        "np.linalg.lstsq(columns, seconds)": "None says what numpy 2 does anyway; 1.26 would warn",
    },
    "shuffled_every_epoch": {
        "argument: DataLoader(dataset, batch_size, sampler=sampler) "
        "-> DataLoader(dataset, sampler=sampler)": (
            "the same samples in the same order, one at a time; the result holds no batches"
        ),
    },
    "save_atomically": {
        "argument: new.unlink(missing_ok=True) -> new.unlink()": (
            "an error is raised all the same, with the first one as its context"
        ),
    },
    "even_work": {
        "constant: 0 -> 1": "totals that all begin at 1 differ by as much as if they began at 0",
    },
    "global_loss": {
        "argument: torch.tensor([total, rows], device=loss.device) -> "
        "torch.tensor([total, rows])": "a check runs on the CPU, where this is the device of loss",
    },
    "gather_uneven": {
        "argument: torch.tensor(len(tensor), device=tensor.device) -> torch.tensor(len(tensor))": (
            "a check runs on the CPU, where this is the device of every tensor"
        ),
    },
}


def changes(node: ast.AST, field: str, stored: Counter[str]) -> Iterator[tuple[str, ast.AST]]:
    """What may stand in the place of a node, and what kind of change that is.

    `stored` counts how often each name is given a value.
    """
    statement = isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and not is_docstring(node)
    if statement and all(stored[n.id] > 1 for n in ast.walk(node) if is_stored(n)):
        yield "deleted", ast.Pass()
    if type(node) in OPPOSITES:
        yield "operator", OPPOSITES[type(node)]()
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "constant", ast.Constant(node.value + 1)
    if isinstance(node, ast.Call) and node.keywords and node.keywords[-1].arg != "strict":
        yield "argument", ast.Call(node.func, node.args, node.keywords[:-1])
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield "argument", ast.Call(node.func, node.args[:-1], node.keywords)
    if field in ("test", "ifs"):
        yield "negated", ast.UnaryOp(ast.Not(), node)
    if isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load) and node.elts[1:]:
        yield "exchanged", type(node)([node.elts[1], node.elts[0], *node.elts[2:]], node.ctx)
    if field == "iter":
        listed = ast.Call(ast.Name("list", ast.Load()), [node], [])
        yield "shortened", ast.Subscript(listed, ast.Slice(ast.Constant(1)), ast.Load())
    if isinstance(node, ast.With) and not any(item.optional_vars for item in node.items):
        yield "unwrapped", ast.If(ast.Constant(True), node.body, [])
    if isinstance(node, ast.Dict) and node.values[1:]:
        values = [node.values[1], node.values[0], *node.values[2:]]
        yield "exchanged", ast.Dict(node.keys, values)


def is_stored(node: ast.AST) -> bool:
    """A name that is given a value here."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def is_docstring(node: ast.AST) -> bool:
    """A docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def mutants(code: str) -> dict[str, str]:
    """Up to MOST cells with one change each, by what was changed; of every kind if there is one."""
    tree = without_annotations(ast.parse(code))
    whole = ast.unparse(tree)
    nodes = [inner for one in tree.body for inner in ast.walk(one)]
    stored = Counter(n.id for n in nodes if is_stored(n))
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for parent in nodes:
        for field, value in ast.iter_fields(parent):
            slots = value if isinstance(value, list) else [value]
            for place, node in enumerate(slots):
                for kind, other in (
                    changes(node, field, stored) if isinstance(node, ast.AST) else ()
                ):
                    shown = parent if kind == "operator" else node
                    before = ast.unparse(shown)
                    slots[place] = other
                    setattr(parent, field, slots if isinstance(value, list) else other)
                    mutant = ast.unparse(tree)
                    after = ast.unparse(parent if kind == "operator" else other)
                    words = f"{kind}: {first_line(before)} -> {first_line(after)}"
                    if mutant != whole:
                        by_kind.setdefault(kind, []).append((words, mutant))
                    slots[place] = node
                    setattr(parent, field, value)
    return dict(number_duplicates(interleave(by_kind.values())[:MAX_MUTANTS]))


def without_annotations(tree: ast.Module) -> ast.Module:
    """The same functions; what their annotations say has no effect."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return tree


def first_line(text: str) -> str:
    """The first line of some code."""
    return text.partition("\n")[0]


def interleave(lists: object) -> list:
    """The first of each list, then the second of each, and so on."""
    return [item for row in zip_longest(*lists) for item in row if item is not None]


def number_duplicates(pairs: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """With a number after words that occur more than once."""
    counts: Counter[str] = Counter()
    for words, code in pairs:
        counts[words] += 1
        yield f"{words} ({counts[words]})" if counts[words] > 1 else words, code


def test_what_a_mutant_is():
    code = "def f(a):\n    b = g(a, c=1)\n    if a < 1:\n        b = a - 2\n    return b"
    assert list(mutants(code)) == [
        "deleted: b = g(a, c=1) -> pass",
        "argument: g(a, c=1) -> g(a)",
        "negated: a < 1 -> not a < 1",
        "operator: a < 1 -> a <= 1",
        "constant: 1 -> 2",
        "deleted: b = a - 2 -> pass",
        "operator: a - 2 -> a + 2",
        "constant: 1 -> 2 (2)",
    ]


@pytest.mark.release("a mutant of a solution is refused")
@pytest.mark.parametrize("name", names())
def test_a_mutant_of_the_solution_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exercise, known = Exercise(name), SURVIVORS.get(name, {})
    passed = [
        words
        for words, code in mutants(exercise.solution).items()
        if judge(exercise, attempts.save(name, code)).kind == SOLVED
    ]
    assert set(passed) - set(known) == set(), f"{name}: no case shows that these are wrong"
    assert set(known) - set(passed) == set(), f"{name}: refused by now; take them out of SURVIVORS"


def test_survivors_are_mutants():
    assert set(SURVIVORS) <= set(names())
    for name, known in SURVIVORS.items():
        assert set(known) <= set(mutants(Exercise(name).solution)), name
        assert all(len(reason.split()) > 3 for reason in known.values())
