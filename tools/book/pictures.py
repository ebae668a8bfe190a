"""The pictures that stand for a page: a small one of its first, and one for previews elsewhere."""

import base64
import io
import re
import textwrap
import xml.etree.ElementTree as ET

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from manyranks.figures.style import style
from manyranks.rank_colours import RANK_COLOURS

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
GLYPH_SCALE = re.compile(r"scale\((-?[\d.]+) -[\d.]+\)")
NUMBER = re.compile(r"-?\d+\.\d+")


def first_picture(page: str) -> str | None:
    """The first picture on a page as SVG; None if it has none."""
    match = re.search(r'<img\b[^>]*?src="data:image/svg\+xml;base64,([^"]+)"', page)
    return base64.b64decode(match[1]).decode() if match else None


def small(svg: str) -> str:
    """The picture in a tenth of the bytes: text as text instead of outlines, short numbers."""
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    root = ET.fromstring(svg.encode(), parser)
    for parent in list(root.iter()):
        words = ""
        for child in list(parent):
            if child.tag is ET.Comment:
                words = (child.text or "").strip()
                parent.remove(child)
            elif child.tag in (f"{{{SVG}}}{name}" for name in ("metadata", "title", "desc")):
                parent.remove(child)
            elif words and is_text(child):
                parent.insert(list(parent).index(child), as_text(child, words))
                parent.remove(child)
                words = ""
    used = set(re.findall(r"#([\w-]+)", ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        for name, value in element.attrib.items():
            element.set(name, NUMBER.sub(shorter, value))
    for name in ("role", "aria-labelledby", "width", "height"):
        root.attrib.pop(name, None)
    return re.sub(r"\s*\n\s*", " ", ET.tostring(root, encoding="unicode"))


def shorter(number: re.Match) -> str:
    """The number with two digits behind its point."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def is_text(group: ET.Element) -> bool:
    """Whether it is a line of text that matplotlib has drawn as outlines."""
    return "scale(" in group.get("transform", "") and any(
        element.tag == f"{{{SVG}}}use" for element in group.iter()
    )


def as_text(group: ET.Element, words: str) -> ET.Element:
    """The same line as text; its outlines are in units of a hundredth of the font's size."""
    names = " ".join(use.get(f"{{{XLINK}}}href", "") for use in group.iter(f"{{{SVG}}}use"))
    attributes = {
        "transform": GLYPH_SCALE.sub(r"scale(\1)", group.get("transform", "")),
        "style": group.get("style", ""),
        "font-size": "100",
        "font-family": "DejaVu Sans, Verdana, sans-serif",
    }
    if "Bold" in names:
        attributes["font-weight"] = "bold"
    element = ET.Element(f"{{{SVG}}}text", attributes)
    element.text = re.sub(r"[$\\{}]", "", words)
    return element


def card(name: str, sentence: str, title: str) -> bytes:
    """A PNG of 1,200 by 630 pixels, the form that previews take: the book, a title, a sentence."""
    with style():
        figure = Figure(figsize=(12, 6.3), dpi=100, facecolor="#12161b")
        for rank, (width, colour) in enumerate(
            zip((1.0, 0.75, 0.88, 0.56), RANK_COLOURS, strict=False)
        ):
            bar = Rectangle((0.07, 0.15 - 0.03 * rank), 0.86 * width, 0.014, color=colour)
            bar.set_transform(figure.transFigure)
            figure.add_artist(bar)
        figure.text(0.07, 0.86, name, color="#9aa7b4", fontsize=20)
        lines = textwrap.wrap(title, 32)[:2]
        size = 50 if len(lines) == 1 else 42
        figure.text(
            0.07,
            0.78,
            "\n".join(lines),
            color="white",
            fontsize=size,
            weight="bold",
            va="top",
            parse_math=False,
        )
        sentence = textwrap.shorten(sentence, 190, placeholder=" …")
        figure.text(
            0.07,
            0.62 if len(lines) == 1 else 0.54,
            textwrap.fill(sentence, 56),
            color="#d5dce3",
            fontsize=24,
            va="top",
            linespacing=1.5,
            parse_math=False,
        )
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", facecolor="#12161b", metadata={"Software": None})
    return buffer.getvalue()
