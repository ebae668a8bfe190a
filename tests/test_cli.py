"""The instructor's commands, as typed."""

from typer.testing import CliRunner

from ddp_workbook import cli


def test_check_says_what_is_here_and_that_it_works():
    result = CliRunner().invoke(cli.app, ["check", "--ranks", "2"], terminal_width=200)
    assert result.exit_code == 0, result.output
    for words in (
        "This machine",
        "1,797 digits",
        "2 ranks met in",
        "JupyterLab: version",
        "Ready.",
    ):
        assert words in result.output


def test_check_names_what_is_missing_and_fails(monkeypatch):
    def broken():
        raise RuntimeError("the digits are gone")

    monkeypatch.setattr(cli, "try_data", broken)
    monkeypatch.setattr(cli, "try_ranks", lambda ranks: "fine")
    result = CliRunner().invoke(cli.app, ["check"])
    assert result.exit_code == 1
    assert "data: the digits are gone" in result.output and "Not ready: data." in result.output


def test_a_wrong_sum_is_not_ready(monkeypatch):
    monkeypatch.setattr("ddp_workbook.launcher.launch.launch", lambda worker, ranks: [3.0, 4.0])
    result = CliRunner().invoke(cli.app, ["check", "--ranks", "2"])
    assert result.exit_code == 1 and "Not ready: ranks." in result.output


def test_no_ranks_are_refused():
    result = CliRunner().invoke(cli.app, ["check", "--ranks", "0"])
    assert result.exit_code == 2
