"""Chapter 06, a real run: one process's training on any number of ranks, with any switch."""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ddp_workbook import launch
from ddp_workbook.chapters import fully_sharded_real_run as program
from ddp_workbook.chapters.fully_sharded_real_run import Settings
from ddp_workbook.experiments.fully_sharded import real_run
from manyranks.errors import WorkbookError

pytestmark = pytest.mark.push("claims of further pages")

TINY = Settings(
    real_run.TEXT, width=32, heads=2, length=16, batch=8, micro_batch=1, steps=6, warm_up=2,
    save_every=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def expected() -> real_run.RunResult:
    """One process, and nothing of the program but data, first weights and learning rate."""
    return real_run.run_one_process(TINY)


def assert_same(run: real_run.RunResult, expected: real_run.RunResult) -> None:
    """Up to rounding: 6e-7 is the largest difference seen."""
    assert run.losses == pytest.approx(expected.losses[run.first_step :], abs=1e-5)
    assert run.norms == pytest.approx(expected.norms[run.first_step :], abs=1e-4)
    torch.testing.assert_close(run.weights, expected.weights, rtol=0, atol=1e-4)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_equal_one_process(ranks, expected, tmp_path):
    assert_same(real_run.on_ranks(ranks, replace(TINY, checkpoints=tmp_path)), expected)


@pytest.mark.parametrize(
    "switch",
    [
        {"checkpointing": "none"},
        {"checkpointing": "full"},
        {"keep_gradients": True},
        {"micro_batch": 4},  # no accumulation
        {"compile": "eager"},
    ],
    ids=str,
)
def test_no_switch_changes_the_training(switch, expected, tmp_path):
    assert_same(real_run.on_ranks(2, replace(TINY, checkpoints=tmp_path, **switch)), expected)


def test_it_goes_on_from_the_newest_complete_checkpoint_on_other_ranks(expected, tmp_path):
    """Not from one whose .metadata is missing, because a rank died while it was saved."""
    settings = replace(TINY, checkpoints=tmp_path / "of_4")
    real_run.on_ranks(4, settings)
    run = real_run.resume_run(2, settings, 3, tmp_path / "of_2")
    assert run.first_step == 3
    assert_same(run, expected)
    (tmp_path / "of_2" / "step_0000006" / ".metadata").unlink()
    again = real_run.on_ranks(1, replace(settings, checkpoints=tmp_path / "of_2"))
    assert again.first_step == 3
    assert_same(again, expected)


def test_the_file_alone_trains_and_goes_on(tmp_path):
    """Copied elsewhere, under torchrun, in bfloat16, compiled, with accumulation."""
    copy = tmp_path / "own.py"
    shutil.copy(program.__file__, copy)
    assert "ddp_workbook" not in ast.unparse(ast.parse(copy.read_text()).body[1:])
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["--text", str(real_run.TEXT), "--bf16", "--compile", "aot_eager", "--length", "16"]
    words += ["--width", "32", "--heads", "2", "--warm-up", "2", "--log-every", "2"]
    found = []
    for steps in (6, 8):
        result = subprocess.run(
            [*line, copy, *words, "--steps", str(steps)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            env={name: value for name, value in os.environ.items() if "RANK" not in name}
            | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )
        assert result.returncode == 0, result.stderr
        found += re.findall(r"step (\d+), loss ([\d.]+), norm [\d.]+, tokens_per_s", result.stdout)
    assert [int(step) for step, _ in found] == [2, 4, 6, 8]
    assert float(found[-1][1]) < float(found[0][1])
    assert {path.name for path in tmp_path.glob("checkpoints/*")} == {
        "step_0000006", "step_0000008"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"batch": 6, "micro_batch": 2}, "--batch 6 is no multiple of 2 ranks x --micro-batch 2"),
        ({"length": 150_000}, r"--length 150000: .*alice.txt has 148481 bytes"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_refused(setting, words):
    with pytest.raises(WorkbookError, match=words):
        launch(program.train, replace(TINY, **setting), ranks=2)


def test_a_kind_of_checkpointing_that_there_is_not_is_refused():
    with pytest.raises(SystemExit, match="--checkpointing ful: selective, full or none"):
        Settings(checkpointing="ful")


def test_ranks_share_the_tokens_of_a_step():
    """The same ones on any number of ranks, and others in the next step or with another seed."""
    text = program.memory_map(real_run.TEXT)
    assert bytes(text[:200].tolist()).split()[:1] == [b"ALICE'S"]

    def of(ranks: int, step: int, seed: int = 0) -> list[str]:
        rows = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(program.dist, "get_world_size", lambda: ranks)
            for part in range(TINY.batch // ranks):
                for rank in range(ranks):
                    patch.setattr(program.dist, "get_rank", lambda rank=rank: rank)
                    rows.append(
                        str(program.tokens_of(text, replace(TINY, seed=seed), step, part).tolist())
                    )
        return rows

    assert len(set(of(1, 0))) == TINY.batch
    assert sorted(of(1, 0)) == sorted(of(2, 0)) == sorted(of(4, 0))
    assert not set(of(1, 0)) & set(of(1, 1))
    assert not set(of(1, 0)) & set(of(1, 0, seed=1))


def test_the_learning_rate_warms_up_and_falls_to_a_tenth():
    settings = Settings(steps=1000, warm_up=10, rate=1.0)
    rates = [program.rate(step, settings) for step in range(1000)]
    assert rates[0] == 0.1 and max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=1e-4)


@pytest.mark.parametrize("settings", [TINY, real_run.foundry_settings("7B")], ids=["tiny", "7B"])
def test_the_formula_of_operations_is_pytorchs_count(settings):
    settings = replace(settings, layers=2, checkpointing="none")
    with torch.device("meta"):
        model = program.Decoder(settings)
    formula = program.flops_per_token(model, settings)
    assert real_run.count_flops(settings) == formula


def test_each_switch_does_what_the_page_says():
    """The kept part stays, the others fall; whole gradients are four bytes a parameter."""
    measured = real_run.switches(ranks=2)
    held = [measured[name].held for name in real_run.SWITCHES]
    block, units, bf16, selective, full, kept = held
    assert len({one.model_states for one in held}) == 1
    assert units.unsharded < block.unsharded and bf16.unsharded < units.unsharded
    assert full.activations < selective.activations < bf16.activations < units.activations
    assert [one.unsharded for one in (selective, full)] == [bf16.unsharded] * 2
    whole = 4 * sum(one.numel() for one in program.Decoder(real_run.SMALL).parameters())
    assert whole * 0.7 < kept.unsharded - selective.unsharded < whole
    sent = real_run.calls_table(measured, ranks=2)["kB sent in a ring"]
    assert sent.iloc[2] == pytest.approx(sent.iloc[1] * 2 / 3, rel=0.05)
    assert "full checkpointing" in real_run.bars(measured).alt


def test_the_book_is_the_file_of_the_canterbury_corpus():
    """But for the ends of its lines; data/README.md names the number."""
    corpus = real_run.TEXT.read_bytes().replace(b"\n", b"\r\n")
    digest = hashlib.sha256(corpus).hexdigest()
    assert digest in (Path(real_run.TEXT).parent / "README.md").read_text(encoding="utf-8")
    assert len(corpus) == 152_089
