"""A question on a page: buttons or a field to click on, or text where no kernel answers clicks."""

import html
from functools import partial

import ipywidgets

from ddp_workbook.page.controls import button, field
from ddp_workbook.page.guesses import (
    TOO_LATE,
    VISIBLE_WIDGETS,
    Guess,
    RevealedAnswer,
    is_answered,
    load_guess,
    save_guess,
)
from ddp_workbook.page.questions import Question, QuestionError

STATUS = '<div role="status" style="font-size:90%">{}&nbsp;</div>'
ASK = '<p style="margin:0.3em 0"><strong>Predict.</strong> {}</p>'


class QuestionWidget:
    """What `predict` returns. `notice` is what the reader should know besides their guess."""

    def __init__(self, question: Question):
        self.question, self.notice = question, ""
        self.buttons = {
            letter: button(f"{letter}) {choice}")
            for letter, choice in zip(question.letters, question.choices, strict=True)
        }
        self.field = None if question.choices else field("your guess", question.unit)
        for letter, choice_button in self.buttons.items():
            choice_button.on_click(partial(self._on_click, letter))
        if self.field:
            self.field.observe(self._on_text, names="value")
        self.status = ipywidgets.HTML()
        self.show()
        VISIBLE_WIDGETS.add(self)

    def take(self, guess: object) -> None:
        """Keep this guess. Raises QuestionError for what is no answer."""
        self.notice = save_guess(self.question, guess)
        self.show()

    def _on_click(self, letter: str, _button: object) -> None:
        self.take(letter)

    def _on_text(self, change: dict) -> None:
        text = change["new"].strip()
        if not text:
            return
        try:
            self.take(text)
        except QuestionError as error:
            self.notice = str(error)
            self.show()

    def show(self) -> None:
        """Mark the guess, say what is kept, and take no more once the answer was shown."""
        guess = load_guess(self.question.name)
        over = is_answered(self.question.name, guess)
        for letter, choice_button in self.buttons.items():
            is_guess = guess is not None and guess.now == letter
            choice_button.icon = "check" if is_guess else ""
            choice_button.button_style = "primary" if is_guess else ""
            choice_button.disabled = over
        if self.field:
            self.field.disabled = over
        self.status.value = STATUS.format(html.escape(self.status_text(guess)))

    def status_text(self, guess: Guess | None) -> str:
        """What is known of the guess, in words."""
        words = []
        if guess and guess.answer is not None:
            words.append(RevealedAnswer(self.question, guess.answer, guess).comparison)
        elif guess:
            words.append(f"Your guess: {self._short(guess.now)}.")
            if guess.first != guess.now:
                words.append(f"At first: {self._short(guess.first)}.")
        elif is_answered(self.question.name, guess):
            words.append(TOO_LATE)
        return " ".join(dict.fromkeys([*words, self.notice])).strip()

    def _short(self, answer: str | float) -> str:
        return answer if isinstance(answer, str) else self.question.words(answer)

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        question = ipywidgets.HTML(ASK.format(html.escape(self.question.ask)))
        answers = [self.field] if self.field else list(self.buttons.values())
        box = ipywidgets.VBox([question, *answers, self.status])
        still = {"text/html": self._still(), "text/plain": repr(self)}
        return dict(box._repr_mimebundle_()) | still

    def _still(self) -> str:
        choices = "".join(f"<li>{html.escape(choice)}</li>" for choice in self.question.choices)
        choice_list = f'<ol type="a">{choices}</ol>' if choices else ""
        status = html.escape(self.status_text(load_guess(self.question.name)))
        return (
            ASK.format(html.escape(self.question.ask))
            + choice_list
            + (status and f"<p>{status}</p>")
        )

    def __repr__(self) -> str:
        question = self.question
        lines = [
            f"Predict. {question.ask}",
            *([question.lettered_choices] if question.choices else []),
        ]
        guess = load_guess(question.name)
        if status := self.status_text(guess):
            lines.append(status)
        if guess is None and not is_answered(self.question.name, guess):
            example = f'"{question.letters[0]}"' if question.choices else "42"
            unit = f", in {question.unit}" if question.unit else ""
            lines.append(f'Type predict("{question.name}", {example}) to keep a guess{unit}.')
        return "\n".join(lines)
