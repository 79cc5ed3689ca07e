"""A matplotlib figure that shows itself where it is the last line of a notebook cell."""

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that needs neither pyplot nor a magic command to be shown."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png")
        return data.getvalue()
