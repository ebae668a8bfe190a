"""What `doctor --explain` says of each rule, and the findings as GitHub reads them."""

import ast
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import astuple

import pytest

from ddp_workbook.page import pages
from manyranks.script_doctor import diagnosis
from manyranks.script_doctor.diagnosis import DoctorReport
from manyranks.script_doctor.explanations import WIDTH, all_explanations, explain
from manyranks.script_doctor.facts import LIKELY, NOTE, WRONG, Finding
from manyranks.script_doctor.workflow_commands import workflow_commands
from tests.commands import run
from tools.set_up import ROOT


def rules_of_findings() -> Iterator[str]:
    """The first argument of each `Finding(...)` in the package: a name, or one of two."""
    for source in (ROOT / "src/manyranks").rglob("*.py"):
        for call in ast.walk(ast.parse(source.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Finding":
                rule = call.args[0]
                for name in (rule.body, rule.orelse) if isinstance(rule, ast.IfExp) else [rule]:
                    yield ast.literal_eval(name)


def test_each_rule_has_an_explanation_and_each_explanation_a_rule():
    assert list(all_explanations()) == sorted(set(rules_of_findings()))


@pytest.mark.parametrize("rule", all_explanations())
def test_an_explanation_can_be_read_and_its_code_compiles(rule):
    explanation = all_explanations()[rule]
    assert all(part.strip() for part in astuple(explanation))
    for code in (explanation.example, explanation.fix):
        compile(textwrap.dedent(code), rule, "exec")
    assert explanation.example.count("  # <- here\n") == 1 and "<- here" not in explanation.fix
    assert explanation.page in {page.stem for page in pages.all_pages()}
    assert max(map(len, str(explanation).splitlines())) <= WIDTH


def test_the_list_has_a_line_for_each_rule():
    lines = explain("all").splitlines()
    assert [line.split()[0] for line in lines] == list(all_explanations())
    assert max(map(len, lines)) <= WIDTH and explain("list") == explain("all")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--explain", "same-rows"], 0, "same-rows: all ranks train on the same rows"),
        (["train.py", "--explain", "no-set-epoch"], 0, "See page 04_samplers of the workbook."),
        (["--explain", "same_row"], 2, "Did you mean same-rows? There are: accumulation-without"),
        (["--explain", "xyz"], 2, "There is no rule 'xyz'. There are: accumulation-without"),
        ([], 2, "name a script, or a rule with --explain"),
        (["train.py", "--json", "--github"], 2, "leave one of the two out"),
        (["train.py", "--ignore", "same_row"], 2, "Did you mean same-rows?"),
        (["tests.commands"], 2, "tests.commands is a module: write -m"),
        (["-m", "no.such"], 2, "no.such"),
    ],
)
def test_the_command_explains_or_says_what_it_needs(words, code, said):
    returned, printed = run("doctor", *words)
    assert returned == code and said in printed


def test_an_explanation_needs_no_torch():
    program = (
        "import sys; from ddp_workbook.cli import app\n"
        "app(['doctor', '--explain', 'same-rows'], standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def report(tmp_path, monkeypatch):
    """`report(finding, ...)`: that of runs/train.py, below the current folder."""
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "runs" / "train.py")

    def of(*findings: Finding) -> DoctorReport:
        return DoctorReport("train.py", 2, [*findings], [], [], [], [], 3, path=path)

    return of


@pytest.mark.parametrize(
    ("level", "fact", "lines", "said"),
    [
        (
            WRONG,
            "All ranks: 100 %, really.",
            ("train.py:9", "train.py:5"),
            "::error file=runs/train.py,line=9,title=a-rule::All ranks: 100 %25, really. Why.",
        ),
        (
            LIKELY,
            "A\r\nB",
            ("my,x.py:3",),
            "::warning file=my%2Cx.py,line=3,title=a-rule::A%0D%0AB Why.",
        ),
        (NOTE, "C", (), "::notice file=runs/train.py,title=a-rule::C Why."),
    ],
)
def test_a_finding_is_a_workflow_command(level, fact, lines, said, report):
    finding = Finding("a-rule", level, fact, "Why.", lines, "04_samplers")
    assert list(workflow_commands(report(finding))) == [said]


def test_what_the_command_prints_of_a_report(report, monkeypatch):
    """The report, which names the first rule; JSON with its version; and commands on request."""
    findings = [Finding(rule, NOTE, "A.", "B.", (), "04_samplers") for rule in ("one", "two")]
    more = "ddp-workbook doctor --explain one says more."
    monkeypatch.setattr(diagnosis, "doctor", lambda *_, **__: report(*findings))
    assert run("doctor", "train.py")[1].endswith(more)
    assert next(iter(json.loads(run("doctor", "train.py", "--json")[1]).items())) == ("version", 1)
    commands = [f"::notice file=runs/train.py,title={rule}::A. B." for rule in ("one", "two")]
    assert run("doctor", "train.py", "--github")[1].endswith(" ".join([more, *commands]))
    monkeypatch.setattr(diagnosis, "doctor", lambda *_, **__: report())
    assert "--explain" not in run("doctor", "train.py")[1]
