"""What the scripts of a page read: its charts, as data."""

import json
from html.parser import HTMLParser
from typing import Any


class _Charts(HTMLParser):
    data, inside = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "script" and dict(attrs).get("id") == "charts"

    def handle_data(self, data: str) -> None:
        self.data += data * self.inside


def charts_of(page: str) -> dict[str, Any]:
    """The charts of a page by their names."""
    read = _Charts()
    read.feed(page)
    return json.loads(read.data)
