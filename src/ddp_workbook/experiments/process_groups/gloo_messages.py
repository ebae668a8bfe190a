"""What gloo says when a rank waits in vain. It imports nothing: ranks import it in a short cell."""


def reason(error: Exception) -> str:
    """Gloo's sentence, without the place in its source before it and its advice behind it."""
    text = str(error)
    return (text.partition("] ")[2] or text).partition(". ")[0]
