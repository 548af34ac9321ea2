"""A game file's bytes as text that knows its bytes, and the games found in it as entries of a kind each. Pure."""

from __future__ import annotations

import abc
import codecs
import enum
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from azq.errors import ConfigError
from azq.games import Game, State

BLANK = " \t\r\n\v\f\0\ufeff"  # marks of byte order stand between files that were joined
MARKS = (  # the longer ones first: UTF-32's begins as UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WIDER = {"shift_jis": "cp932", "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949"}  # what files of that name really hold
SHOWN = 40  # characters of a file in a refusal

_HALF = re.compile(rb"[\x81-\xfe]\\\]")
_DECLARED = re.compile(rb"(?<![A-Za-z])CA\s*\[\s*([\w.:-]+)\s*\]")
_RUN = re.compile(rb"[\x80-\xff]+")
_PAIR = re.compile(rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]")  # a character of Shift-JIS, GBK, Big5 or EUC-KR
_ALONE = frozenset(b"\x81\x83\x86\x87\x88\x89\x8b\x8d\x8f\x90\x98\x9b\x9d")  # between ASCII: no letter or quotation mark of the West


class EntryKind(enum.Enum):
    """What a entry of a game is; only moves, passes and swaps meet the rules."""

    MOVE = enum.auto()
    PASS = enum.auto()
    RESIGNATION = enum.auto()
    SWAP = enum.auto()
    SETUP = enum.auto()
    NOTE = enum.auto()
    CLOCK = enum.auto()


class FileEntry(NamedTuple):
    """One thing that a file says of a game, at the character where it stands."""

    kind: EntryKind
    name: str
    value: str
    at: int


class Found(NamedTuple):
    """A game as a file has it, or text that is none: where it begins, and why it cannot be read, with the place."""

    at: int
    entries: Sequence[FileEntry] = ()
    sign: int | None = None  # of the result, as the form counts it
    problem: tuple[int, str] | None = None
    stray: bool = False


class Replaying(abc.ABC):
    """Plays the entries of one game by the rules."""

    def __init__(self, game: Game, state: State, entries: Sequence[FileEntry]) -> None:
        self.game, self.state, self.entries = game, state, entries

    def seat(self, entry: FileEntry) -> int | None:
        """The player whose entry it is; None where it does not say."""
        return None

    def sign(self, result: int) -> int:
        """Of player 0's result, from the sign of who began in the file's own terms."""
        return result

    @abc.abstractmethod
    def __call__(self, entry: FileEntry) -> None:
        """Applies a move, a pass, a swap or a set-up; raises `IllegalActionError` or `ConfigError`."""


@dataclass(slots=True)
class Text:
    """Decoded text; `byte` is fastest for places that ascend."""

    text: str
    codec: str = "latin-1"
    mark: int = 0  # bytes before the text
    _seen: tuple[int, int] = (0, 0)

    def byte(self, at: int) -> int:
        """Where the character stands in the file."""
        index, byte = self._seen if self._seen[0] <= at else (0, 0)
        self._seen = at, byte + len(self.text[index:at].encode(self.codec, _errors(self.codec)))
        return self.mark + self._seen[1]


def _errors(codec: str) -> str:
    return "surrogateescape" if codec == "utf-8" else "strict"


def decode(data: bytes) -> Text:
    """By byte order mark, UTF-8 where the bytes are that, the encoding that SGF's CA declares, else byte by byte.

    UTF-8 never holds an ASCII byte within a character, so that it cannot swallow a bracket where CA is right. Raises `ConfigError`
    naming the byte.
    """
    for mark, codec in MARKS:
        if data.startswith(mark):
            return _strictly(data[len(mark) :], codec, len(mark))
    if data[:1] and 0 in data[:2]:
        return _strictly(data, "utf-16-le" if data[0] else "utf-16-be", 0)
    text = data.decode("utf-8", "surrogateescape")
    bad = sum("\udc80" <= character <= "\udcff" for character in text)
    if not bad:
        return Text(text, "utf-8")
    mostly = sum("\u0800" <= character < "\ud800" for character in text) >= bad  # three bytes each, which others hardly form
    return _declared(data) or (Text(text, "utf-8") if mostly else _by_byte(data))


def _strictly(data: bytes, codec: str, mark: int) -> Text:
    try:
        return Text(data.decode(codec, _errors(codec)), codec, mark)
    except UnicodeDecodeError as error:
        raise ConfigError(f"byte {mark + error.start} is not {codec.upper()}, as the file's first bytes say") from None


def _declared(data: bytes) -> Text | None:
    declared = {match[1].lower(): match.start() for match in reversed(list(_DECLARED.finditer(data)))}
    if len(declared) > 1:
        raise ConfigError(f"byte {max(declared.values())}: it declares several encodings (CA); split the file, or write UTF-8")
    for name in declared:
        try:
            codec = codecs.lookup(name.decode("ascii")).name
            codec = WIDER.get(codec, codec)
            if "(;[]".encode(codec) == b"(;[]":
                return Text(data.decode(codec), codec)
        except (LookupError, UnicodeError):
            break
    return None


def _by_byte(data: bytes) -> Text:
    """A character a byte, but two for East Asian characters where one may hide a bracket and the bytes around look East Asian."""
    hidden = next((pair for pair in _PAIR.finditer(data) if pair[0][1] in b"[\\]{}"), None)
    weights = Counter[bool | None]()
    for run in _RUN.findall(data) if hidden else ():
        east = run[0] in _ALONE if len(run) == 1 else any(0x81 <= byte <= 0x9F for byte in run)
        weights[True if east else False if len(run) == 1 or min(run) >= 0xC0 else None] += len(run)
    if hidden and weights[True] > weights[False]:
        return Text(_PAIR.sub(b"??", data).decode("latin-1"))
    half = hidden if weights[True] == weights[False] else _HALF.search(data)
    if half:
        raise ConfigError(f"byte {half.start()} may be half a character; say the file's encoding (SGF: CA[Shift_JIS]), or write UTF-8")
    return Text(data.decode("latin-1"))


def shown(text: str) -> str:
    """The beginning of what stands in a file, on one line."""
    line = " ".join(text[: 4 * SHOWN].split())
    return repr(line if len(line) <= SHOWN else f"{line[:SHOWN]}...")


def cannot(form: str, name: str, games: Iterable[str]) -> ConfigError:
    """What is raised for a game that a notation does not know."""
    return ConfigError(f"--format {form} tells games of {', '.join(games)}, not of {name}; jsonl tells those of any game")
