"""What contributors call themselves: what may be a name, and when a reader would take two for one. Pure."""

from __future__ import annotations

import unicodedata

LONGEST_NAME = 32
MARKS = " -_.'"  # besides letters and digits
NOBODY = "guest"  # whoever calls himself so has no name


def guest_name(contributor: str) -> str:
    """What a contributor without a name is called."""
    return f"{NOBODY}-{contributor[:6]}"


def tidy(text: str) -> str:
    """A name as it is kept and shown: composed, in one line, no longer than it may be."""
    composed = unicodedata.normalize("NFKC", text)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in composed).split())[:LONGEST_NAME].rstrip()


def is_nobody(name: str) -> bool:
    """Whether it says that its bearer wants no name."""
    return sounds_like(name).startswith(NOBODY)


def unfit(name: str) -> str:
    """Why a tidy name cannot be one; empty where it can."""
    if strange := next((letter for letter in name if letter not in MARKS and not _is_read(letter)), ""):
        return f"a name has letters, digits and {MARKS.strip()}, not {strange}"
    return "" if sounds_like(name) else "a name has a letter or a digit"


def sounds_like(name: str) -> str:
    """Alike for names that differ in case, spaces and marks alone."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", name.casefold()) if _is_read(letter))


def _is_read(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LMN"
