"""What is raised at the door: one sentence for one problem in what a user gave."""


class InputError(ValueError):
    """Bad input, told in one sentence: where, which field, which value, what is allowed.

    Args:
        where: the file, command-line option or function the value came from.
        field: the name of the offending field, or ``""`` when the whole input is bad.
        value: the offending value (shortened when printed).
        allowed: what would have been accepted.

    >>> print(InputError("run.toml", "plan.tp", -1, "a number above 0"))
    run.toml: plan.tp is -1; allowed: a number above 0
    """

    def __init__(self, where: str, field: str, value: object, allowed: str):
        self.where, self.field, self.value, self.allowed = where, field, value, allowed
        try:
            shown = f"'{value}'" if isinstance(value, str) else str(value)
        except ValueError:  # an integer of thousands of digits
            shown = "an integer too long to print"
        if len(shown) > 80:
            shown = shown[:77] + "..."
        subject = f"{field} is {shown}" if field else shown
        super().__init__(" ".join(f"{where}: {subject}; allowed: {allowed}".split()))
