"""What a check raises when the attempt does not do what the task asks."""


class NotYet(Exception):
    """Four sentences: what was called, what came back, what is required, where to look.

    They may take several lines, and never contain the solution. A check raises this, or in a rank
    the function through which the check calls the attempt.
    """

    def __init__(self, called: str, came_back: str, required: str, look_at: str):
        super().__init__(called, came_back, required, look_at)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The sentences with their headings, as a verdict shows them."""
        headings = ("called", "came back", "required", "look at")
        return list(zip(headings, self.args, strict=True))
