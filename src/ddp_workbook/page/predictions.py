"""`predict` asks a question and keeps the guess in a file; `reveal` shows it beside the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddp_workbook.page.guesses import settle
from ddp_workbook.page.questions import find

if TYPE_CHECKING:
    from ddp_workbook.page.question_widget import QuestionWidget


def predict(name: str, guess: object = None) -> QuestionWidget:
    """Ask the question: buttons or a field in JupyterLab, text elsewhere.

    With a `guess`, that is kept, as by a click: a number, or the letter of a choice. Until the
    answer is shown, a later guess takes the place of the earlier one. Raises QuestionError for an
    unknown name, and for a guess that is no answer to the question.
    """
    from ddp_workbook.page.question_widget import QuestionWidget  # late: ranks import this, too

    widget = QuestionWidget(find(name))
    if guess is not None:
        widget.take(guess)
    return widget


def reveal(name: str, shown: Any = None) -> None:
    """Show the answer beside the guess, which does not change any more.

    `shown` is what the cell measured: a number or the words of a choice is the answer; anything
    else, such as a picture or a table, is shown above it, and the answer is the one in the table of
    questions. Raises QuestionError for an unknown name, or if there is no answer.
    """
    from IPython.display import display  # late: ranks import this, too

    question = find(name)
    answer = question.right
    if isinstance(shown, str | int | float) or getattr(shown, "ndim", 1) == 0:
        answer = question.answer(shown.item() if hasattr(shown, "item") else shown)
    elif shown is not None:
        display(shown)
    display(settle(question, answer))
