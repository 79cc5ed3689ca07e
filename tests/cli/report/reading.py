"""What tests of the report ask for, and its page as a browser takes it apart."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

WORDS = ("report", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2", "--batch", "32")
ASKED = ("llama-3.1-8b", "--hardware", "h100_sxm", "--hardware", "l4", "--total-gpus", "2")
VOID = {"meta", "br", "hr", "img", "link", "input"}
SECTIONS = ["answer", "tradeoff", "controls", "plot", "how", "point", "plan", "flags", "cost"]
SECTIONS += ["time", "roofline", "memory", "sensitivity", "trust", "sources", "charts"]
INTERVALS = ("ttft_interval80_ms", "tpot_interval80_ms")


class Reader(HTMLParser):
    """A page as a browser takes it apart: elements opened and closed, attributes, text, scripts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.text, self.tags, self.scripts = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if "svg" not in self.open:  # ids within a picture are its own
            self.attributes += attrs
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)

    @property
    def data(self):
        """The charts as the page's script reads them."""
        return json.loads(self.scripts[0])

    @property
    def plans(self):
        """The marks of the chart of speed against cost."""
        return self.data["tradeoff"]["spec"]["datasets"]["plans"]


def pictures(text):
    """Every SVG of a page, by an XML parser, which takes nothing that is not well-formed."""
    body = text.partition("<script")[0]
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", body, re.DOTALL)]


def shown(text):
    """The lines to copy."""
    return [unescape(x) for x in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL) if x]
