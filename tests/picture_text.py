"""What stands in a picture."""

from matplotlib.text import Text

from manyranks.figures.style import Picture


def words(picture: Picture) -> list[str]:
    """All its texts, those of its axes included."""
    picture.figure.draw_without_rendering()
    return [text.get_text() for text in picture.figure.findobj(Text)]
