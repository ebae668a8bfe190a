"""Commands of `ddp-workbook`, run in this process as somebody types them."""

from typer.testing import CliRunner

from ddp_workbook import cli


def run(*words: object, **variables: str) -> tuple[int, str]:
    """The exit code, and all that was printed, on one line; raises what the command did not catch.

    `variables` are more variables of the environment.
    """
    line = list(map(str, words))
    result = CliRunner().invoke(cli.app, line, terminal_width=200, env=variables)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())
