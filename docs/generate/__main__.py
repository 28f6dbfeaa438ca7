"""`make reference`: writes docs/reference/ anew."""

from docs.generate.pages import FOLDER, pages


def main() -> None:
    """Write every page, and remove what is none any more."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for stale in {path.name for path in FOLDER.glob("*.md")} - made.keys():
        (FOLDER / stale).unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


main()
