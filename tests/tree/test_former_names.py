"""What readers wrote with the edition before: its imports lead on, its attempts are found."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ddp_workbook import experiments, former_names
from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import UnknownExercise, find, names
from ddp_workbook.workshop.grading import unknown_files

SHOWN = """
from ddp_workbook import launch, on_a_gpu, recorded, yours
from ddp_workbook.digits import DigitsDataset, DigitsMLP, batches
from ddp_workbook.errors import RankFailed
from ddp_workbook.recording.timing import compare, time_step
from ddp_workbook.testing import equals_one_process, ranks
import ddp_workbook.launcher.limits

assert ddp_workbook.launcher.limits.usable_cores() > 0
"""


@pytest.mark.parametrize(("former", "now"), former_names.MODULES.items())
def test_a_module_is_imported_once_under_both_names(former, now):
    """No second copy, whose classes would not be the same."""
    assert import_module(former) is import_module(now)


def test_the_imports_that_pages_showed_work_in_a_new_process():
    """README's and the guide's, too."""
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("former", "now"), former_names.SUBJECTS.items())
def test_a_subject_of_the_demonstrations_says_what_it_is_called_now(former, now):
    """In the chapter that has it, where no other module took its name."""
    (file,) = Path(experiments.__path__[0]).glob(f"*/{now}.py")
    demos = import_module(f"ddp_workbook.experiments.{file.parent.name}")
    with pytest.raises(AttributeError, match=f"'{former}': it is called {now} now"):
        getattr(demos, former)


def test_a_name_that_never_was_is_pythons_own_error():
    """Also below a former name."""
    with pytest.raises(ModuleNotFoundError, match=r"manyranks\.recording\.nothing"):
        import_module("ddp_workbook.recording.nothing")


@pytest.mark.parametrize(("name", "former"), attempts.FORMER_NAMES.items())
def test_attempts_under_a_former_name_are_found_and_stay(name, former, tmp_path, monkeypatch):
    """Latest, earlier and solved ones are taken over once; nothing of the former is changed."""
    monkeypatch.chdir(tmp_path)
    work = Path("work/exercises")
    work.mkdir(parents=True)
    texts = {
        f"{former}.py": f"# %%exercise {former}\ndef {former}(x):\n    return 2\n",
        f"{former}.1.py": f"# %%exercise {former}\ndef {former}(x):\n    return 1\n",
        f"{former}.2.py": f"# %%exercise {former}\ndef {former}(x):\n    return 2\n",
        f"{former}.1.solved": f"{former}.1.py\nIt passed.\n",
    }
    for file, text in texts.items():
        (work / file).write_text(text)
    assert attempts.latest_passed(name) == work.absolute() / f"{name}.1.py"
    assert [path.name for path in attempts.all_attempts(name)] == [f"{name}.1.py", f"{name}.2.py"]
    latest = attempts.latest_attempt(name)
    assert latest and f"def {name}(x):\n    return 2" in latest.read_text()
    latest.write_text("mine\n")
    attempts.latest_attempt(name)
    assert latest.read_text() == "mine\n"
    assert {file: (work / file).read_text() for file in texts} == texts
    assert unknown_files(work) == []


@pytest.mark.parametrize(("name", "former"), attempts.FORMER_NAMES.items())
def test_a_former_name_in_a_cell_says_the_new_one(name, former):
    assert name in names()
    with pytest.raises(UnknownExercise, match=f"Did you mean {name}"):
        find(former)
