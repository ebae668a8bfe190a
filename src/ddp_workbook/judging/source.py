"""Extracts the stub and the solution from an exercise's file.

The solution is between two marks inside the function with the exercise's name:

    ### BEGIN SOLUTION
    ...
    ### GIVEN
    # lines that the stub has instead; without them it raises NotImplementedError
    ### END SOLUTION
"""

import ast
import re
from pathlib import Path

from manyranks.diagnostics.parsing import parse_source

FOLDER = Path(__file__).parents[1] / "exercises"

REGION = re.compile(
    r"^(?P<margin> +)### BEGIN SOLUTION\n(?P<solution>.*?)"
    r"(?:^ +### GIVEN\n(?P<given>.*?))?^ +### END SOLUTION\n",
    flags=re.M | re.S,
)
TODO = "raise NotImplementedError  # TODO: your lines instead of this one\n"


TORCH_NAMES = {"nn", "F", "Tensor"}  # code that uses one of these will need torch itself


class SourceError(ValueError):
    """An exercise's file without its function, or without the marks in it."""


def path_of(name: str) -> Path:
    """The file of the exercise `name`, in the folder of its chapter. Raises StopIteration."""
    return next(FOLDER.glob(f"*/{name}.py"))


def stub(text: str, name: str) -> str:
    """The cell that the reader gets: imports, and the function without its solution."""
    return _cell(text, name, lambda region: _stub_lines(region))


def solution(text: str, name: str) -> str:
    """The same cell, solved."""
    return _cell(text, name, lambda region: region["solution"])


def _stub_lines(region: re.Match) -> str:
    if region["given"] is None:
        return region["margin"] + TODO
    lines = re.sub(r"^( *)# ?", r"\1", region["given"], flags=re.M)
    return re.sub(r" +$", "", lines, flags=re.M)  # as IPython does with a cell, in strings as well


def _cell(text: str, name: str, fill) -> str:
    tree = parse_source(text)
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    function = next((node for node in functions if node.name == name), None)
    if function is None:
        raise SourceError(f"There is no function {name} at the top level.")
    lines = text.splitlines(keepends=True)
    first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
    body = "".join(lines[first - 1 : _last_line(lines, function)])
    if not REGION.search(body):
        raise SourceError(f"{name} holds no lines between BEGIN SOLUTION and END SOLUTION.")
    filled = REGION.sub(fill, body)
    return f"{_imports(tree, filled)}\n\n\n{filled}".strip() + "\n"


def _last_line(lines: list[str], function: ast.FunctionDef) -> int:
    """Number of the function's last line, including comments at its end, such as the mark."""
    end = function.end_lineno or function.lineno
    while end < len(lines) and re.match(r" +#", lines[end]):
        end += 1
    return end


def _imports(tree: ast.Module, code: str) -> str:
    """The file's imports that this code uses, and those of torch, which any attempt needs.

    So the imports of a stub do not reveal its solution.
    """
    used = {node.id for node in ast.walk(parse_source(code)) if isinstance(node, ast.Name)}
    lines, before = [], None
    body = list(tree.body)
    if used & TORCH_NAMES and "import torch" not in map(ast.unparse, body):
        first = next(n for n, node in enumerate(body) if "torch" in ast.unparse(node))
        body.insert(first, parse_source("import torch").body[0])
    for node in body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        aliases = [a for a in node.names if (a.asname or a.name).split(".")[0] in used]
        aliases = aliases or [a for a in node.names if a.name in ("torch", "torch.distributed")]
        if aliases:
            module = (getattr(node, "module", None) or aliases[0].name).split(".")[0]
            group = module == "torch" or module == "ddp_workbook"
            if before is not None and group != before:
                lines.append("")  # the standard library first, then a line between
            before = group
            line = type(node)(**{**vars(node), "names": aliases})
            lines.append(ast.unparse(line))
    return "\n".join(lines)


def same_code(cell: str, other_cell: str) -> bool:
    """True if two cells differ only in comments and white space."""
    try:
        return ast.dump(parse_source(cell)) == ast.dump(parse_source(other_cell))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
