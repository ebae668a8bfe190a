"""Controls in words, values with units: what `play` moves, and what a question is answered with."""

from collections.abc import Iterable
from typing import Any

import ipywidgets

from manyranks.errors import WorkbookError

WIDE = {"description_width": "initial"}  # else a label of more than two words is cut off
SLIDER = {"width": "27em"}
# More characters of words and circles do not fit side by side in a page that is 1,000 pixels wide,
# and ipywidgets (8.1) breaks their lines in a row of fixed height, which cuts them off.
ROW_CHARACTERS, CIRCLE_CHARACTERS = 90, 5


class ControlRefused(WorkbookError, ValueError):
    """A control that cannot be made as asked."""


def slider(label: str, options: Iterable, value: Any = None) -> ipywidgets.SelectionSlider:
    """A slider over these values, such as range(1, 9) or (0.1, 1, 10); starts at `value`, or first.

    The arrow keys move it. A value counts when the handle is let go. The label ends with the unit:
    "tensor, KiB". Raises ControlRefused for no options, or a value that is none of them.
    """
    widget = ipywidgets.SelectionSlider(
        continuous_update=False, layout=SLIDER, **_widget_options(label, options, value)
    )
    widget.add_class("ddpw-slider")
    return widget


def choice(label: str, options: Iterable, value: Any = None) -> ipywidgets.RadioButtons:
    """One of a few words, all of them in sight; starts at `value`, or at the first.

    The Tab key goes from one to the next, and the space bar chooses: JupyterLab keeps the arrows.
    They stand side by side if they fit, and else one below the other.
    Raises ControlRefused as `slider` does.
    """
    given = _widget_options(label, options, value)
    characters = sum(len(words) + CIRCLE_CHARACTERS for words, _ in given["options"])
    orientation = "horizontal" if characters <= ROW_CHARACTERS else "vertical"
    return ipywidgets.RadioButtons(orientation=orientation, layout={"width": "auto"}, **given)


def switch(label: str, value: bool = False) -> ipywidgets.Checkbox:
    """On or off."""
    layout = {"width": "auto"}
    return ipywidgets.Checkbox(value, description=label, indent=False, layout=layout)


def button(words: str) -> ipywidgets.Button:
    """Something to click on, as wide as its words."""
    return ipywidgets.Button(description=words, tooltip=words, layout={"width": "max-content"})


def field(label: str, unit: str = "") -> ipywidgets.Text:
    """A field for a number; it counts when Enter is pressed, or when the field is left."""
    description = f"{label}, {unit}" if unit else label
    placeholder = "a number, then Enter"
    return ipywidgets.Text(
        description=description, placeholder=placeholder, continuous_update=False, style=WIDE
    )


def control(name: str, setting: Any) -> ipywidgets.ValueWidget:
    """The control for a parameter: a widget as it is, True or False a switch, values a slider."""
    if isinstance(setting, ipywidgets.ValueWidget):
        return setting
    label = name.replace("_", " ")
    if isinstance(setting, bool):
        return switch(label, setting)
    if isinstance(setting, Iterable) and not isinstance(setting, str):
        options = list(setting)
        words = any(isinstance(option, str) for option in options)
        return choice(label, options) if words else slider(label, options)
    raise ControlRefused(
        f"{name}={setting!r} is no control. Give it slider(label, values), choice(label, words) or "
        f"switch(label, on), or a list of values."
    )


def text_of(value: Any) -> str:
    """A value as its control shows it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _widget_options(label: str, options: Iterable, value: Any) -> dict[str, Any]:
    values = list(options)
    if not values:
        raise ControlRefused(f"{label!r} has no values to choose from.")
    if value is not None and value not in values:
        allowed_values = ", ".join(map(text_of, values))
        raise ControlRefused(
            f"{label!r} cannot start at {value!r}: its values are {allowed_values}."
        )
    pairs = [(text_of(option), option) for option in values]
    start = values[0] if value is None else value
    return {"options": pairs, "value": start, "description": label, "style": WIDE}
