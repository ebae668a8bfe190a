"""Links inside the book: each must lead to a file, and to a place on it."""

import html
import re
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r'<(?:a|img|link|script)\b[^>]*?\b(?:href|src)="([^"]+)"')
OUTSIDE = ("http:", "https:", "mailto:", "data:")


def broken_links(book: Path) -> list[str]:
    """What leads nowhere: "page: link" for each; links to other sites are not followed."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(book.glob("*.html"))}
    places = {
        name: {html.unescape(place) for place in re.findall(r'\bid="([^"]+)"', text)}
        for name, text in texts.items()
    }
    problems = []
    for name, text in texts.items():
        for link in map(html.unescape, LINK.findall(text)):
            if link.startswith(OUTSIDE):
                continue
            page, _, place = unquote(link).partition("#")
            if not (book / (page or name)).is_file():
                problems.append(f"{name}: there is no file {link}")
            elif place and place not in places[page or name]:
                problems.append(f"{name}: there is no place {link}")
    return problems
