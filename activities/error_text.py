"""What an error of other people's code says, even one that fails to say it."""


def error_text(error: BaseException) -> str:
    """Return the error's text; its `__str__` is code too, and may raise."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text cannot be had: {type(failure).__name__})"
