"""Frames to step through on a page that has no kernel: HTML and CSS, no script, no other file.

A row of radio buttons: the arrow keys move through them, and each frame has its own alt text.
"""

import hashlib
import html
from collections.abc import Sequence

MAX_FRAMES = 40  # frames that the rules below know
RULES = "".join(
    f".ddpw-player > input:nth-of-type({n}):checked ~ .ddpw-frame:nth-of-type({n}){{display:block}}"
    for n in range(1, MAX_FRAMES + 1)
)
# On paper nothing can be clicked: there, the chosen frames stand one below the other.
STYLE = (
    f"<style>.ddpw-frame{{display:none}}{RULES}"
    ".ddpw-player > label{margin:0 1.1em 0 .2em}"
    ".ddpw-player > input:focus-visible + label{outline:2px solid currentColor}"
    ".ddpw-on-paper{display:none}"
    "@media print{.ddpw-player > input,.ddpw-player > label,.ddpw-frame{display:none!important}"
    ".ddpw-frame.ddpw-printed{display:block!important}.ddpw-on-paper{display:block}}</style>"
)


def player(
    frames: Sequence[tuple[str, str]],
    name: str,
    printed: Sequence[int] | None = None,
    shown: int = 0,
) -> str:
    """HTML that shows one of the frames, each (label, HTML), and lets the reader choose which.

    `name` says what one chooses; the page opens with frame `shown`. Paper has the frames whose
    numbers are in `printed`, by default all. Raises ValueError for no frames, or for more than 40.
    """
    if not 0 < len(frames) <= MAX_FRAMES:
        raise ValueError(f"A player has 1 to {MAX_FRAMES} frames, not {len(frames)}.")
    on_paper = range(len(frames)) if printed is None else [n % len(frames) for n in printed]
    group = "p" + hashlib.sha256(repr((frames, name)).encode()).hexdigest()[:12]
    buttons, bodies = [], []
    for number, (label, body) in enumerate(frames):
        input_id, words = f"{group}-{number}", html.escape(str(label))
        checked = " checked" if number == shown else ""
        buttons.append(
            f'<input type="radio" name="{group}" id="{input_id}"{checked}>'
            f'<label for="{input_id}">{words}</label>'
        )
        printed_class = " ddpw-printed" if number in on_paper else ""
        heading = f'<p class="ddpw-on-paper">{html.escape(name)}: {words}</p>'
        bodies.append(f'<div class="ddpw-frame{printed_class}">{heading}{body}</div>')
    return (
        f'{STYLE}<fieldset class="ddpw-player" style="border:0;margin:0;padding:0">'
        f"<legend>{html.escape(name)}</legend>{''.join(buttons)}{''.join(bodies)}</fieldset>"
    )
