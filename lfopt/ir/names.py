"""Foreign text as data: how a name from a file is spelled so that it is safe wherever it is written.

A *plain* name holds ASCII letters, digits, spaces and `_ . : / ; @ # ~ -`; every other byte of its UTF-8 is
written `%XX`. Nothing plain ends a comment or a string, or begins a tag, a macro or a control sequence, in C,
make, CMake, HTML, SVG, Markdown, JSON, CSV or a terminal. Every name in a Graph and in a Plan is plain:
`lfopt.frontend` spells names when it reads a model, and neither can be made of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

LONGEST = 1000  # characters of a name; longer ones are cut
KEPT_HEAD, KEPT_TAIL = 160, 60  # characters of a name that is cut
DIGEST = 16  # hexadecimal digits that tell cut names apart
LONGEST_MESSAGE = 600  # characters
LONGEST_SYMBOL = 60  # characters: ISO C promises 63 significant ones
LONGEST_FILE_NAME = 120  # characters

ESCAPE = "%[0-9A-F]{2}"
PLAIN = re.compile(rf"(?:[\w.:/;@#~ -]|{ESCAPE})*", re.ASCII)
# what may be a formula: at the beginning, and behind what may end a cell; wide forms count as plain ones
FORMULA = re.compile(r"((?:^|[;,|\"]|\\[trn]) *)([=+@\uff1d\uff0b\uff20\uff0d-])")
FOREIGN = re.compile(rf"{ESCAPE}|[^\w.:/;@#~ -]", re.ASCII)


def is_plain(text: str) -> bool:
    """Whether a name may stand anywhere as it is."""
    return PLAIN.fullmatch(text) is not None


def plain(text: str) -> str:
    """A name spelled with plain characters; plain names stay, but for their length.

    >>> plain("conv/1:0"), plain("a*/b"), plain("50%"), plain(plain("a*/b"))
    ('conv/1:0', 'a%2A/b', '50%25', 'a%2A/b')
    """
    spelled = FOREIGN.sub(lambda match: match[0] if len(match[0]) > 1 else _escaped(match[0]), text)
    if len(spelled) <= LONGEST:
        return spelled
    head = re.sub(r"%.?$", "", spelled[:KEPT_HEAD])
    return f"{head}~{_digest(text, DIGEST)}~{spelled[-KEPT_TAIL:].replace('%', '_')}"


def _escaped(character: str) -> str:
    # a byte of a file name that is no UTF-8
    odd = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", odd))


def _digest(text: str, digits: int) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def distinct(names: Iterable[str]) -> dict[str, str]:
    """Plain spellings of names, no two the same.

    A name that is plain keeps its spelling, whatever the others are.

    >>> distinct(["a*", "a%2A", "b"])
    {'a*': 'a%2A#a4a87d31', 'a%2A': 'a%2A', 'b': 'b'}
    """
    wanted = {name: plain(name) for name in names}
    taken = {name for name, spelled in wanted.items() if name == spelled}
    for name, spelled in wanted.items():
        if name == spelled:
            continue
        digits = 0
        while wanted[name] in taken:
            digits += 8
            wanted[name] = f"{spelled}#{_digest(name, digits)}"
        taken.add(wanted[name])
    return wanted


def span(names: Sequence[str]) -> str:
    """Names of operators in short: the first and the last.

    >>> span(["a"]), span(["a", "b", "c"])
    ('a', 'a .. c')
    """
    if len(names) == 1:
        return names[0]
    return f"{names[0]} .. {names[-1]}"


def shared_prefix(names: Sequence[str]) -> str:
    """What all names begin with, up to a dot, a slash or the like.

    >>> shared_prefix(("stage1.block1.expand", "stage1.block2.expand"))
    'stage1.'
    """
    first = min(names)
    last = max(names)
    length = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return re.sub(r"[^./:_]*$", "", first[:length])


def identifier(text: str) -> str:
    """A C identifier for a name. Those of names that differ in more than `- . / :` and spaces differ.

    >>> identifier("resnet18-v1.7"), identifier("3d"), identifier("a*b")
    ('resnet18_v1_7', 'model_3d', 'a_b_15eb0a')
    """
    symbol = re.sub(r"\W", "_", text, flags=re.ASCII)
    symbol = symbol if symbol[:1].isalpha() else f"model_{symbol}"
    if len(symbol) > LONGEST_SYMBOL or re.search(r"[^\w ./:-]", text, flags=re.ASCII):
        symbol = f"{symbol[: LONGEST_SYMBOL - 7]}_{_digest(text, 6)}"
    return symbol


def file_name(text: str) -> str:
    """The name of a file or folder: one part of a path, neither hidden nor `..`, whatever the name.

    >>> file_name("resnet18"), file_name("../x"), file_name("")
    ('resnet18', '%2E.%2Fx', '%')
    """
    spelled = plain(text).replace("/", "%2F").replace(":", "%3A")
    spelled = re.sub(r"^[.~ -]", lambda match: _escaped(match[0]), spelled)
    spelled = re.sub(r"[. ]$", lambda match: _escaped(match[0]), spelled)
    if len(spelled) > LONGEST_FILE_NAME:
        spelled = f"{spelled[: LONGEST_FILE_NAME - DIGEST - 1]}~{_digest(text, DIGEST)}"
    return spelled or "%"


def printable(text: object) -> str:
    r"""Any text in one line, for a terminal: what cannot be printed is escaped as Python does.

    >>> print(printable("naïve\n\x1b[2J"))
    naïve\n\x1b[2J
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in str(text)
    )


def cell(text: str) -> str:
    r"""A text as a cell of CSV: one printable line, and no formula, wherever a spreadsheet cuts it.

    What it would compute has a ' before it, which makes it text.

    >>> cell("=1+1"), cell("a; -2"), cell("block-1"), cell("\t@x")
    ("'=1+1", "a; '-2", 'block-1', "\\t'@x")
    """
    return FORMULA.sub(r"\1'\2", printable(text))


def one_line(error: object) -> str:
    """A message as one line of printable characters, its middle cut out where it gets long."""
    text = printable(" ".join(str(error).split()) or type(error).__name__)
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[:400]} ... {text[-200:]}"


def plural(count: int, noun: str) -> str:
    """A count and its noun, with an s unless the count is 1.

    >>> plural(1, "group"), plural(1000, "group")
    ('1 group', '1,000 groups')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"
