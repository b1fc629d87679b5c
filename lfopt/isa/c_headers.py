"""The tables of registers and of the manifest as headers of C, for drivers and harnesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from lfopt.isa import manifest, tables
from lfopt.isa.registers import FIXED, PAGE_BYTES, Register

ENUMS = {
    "lf_error": ("LF_ERR_", tables.Error),
    "lf_queue": ("LF_QUEUE_", tables.Queue),
    "lf_counter": ("LF_COUNT_", tables.Counter),
}
WORDS = {"lf_manifest_word": ("LF_MANIFEST_", manifest.Header), "lf_map_word": ("LF_MAP_", manifest.MapEntry)}
MADE = "Made from lfopt.isa: do not edit."


def generate() -> Sequence[tuple[str, str]]:
    """Files to write beside the driver: (name, text)."""
    return (("lf_registers.h", registers()), ("lf_manifest.h", words()))


def registers() -> str:
    """Offsets, fields, values after reset; errors, queues and counters. For C99 and C++."""
    lines = [
        f"/* Registers of the accelerator. {MADE} */",
        "#ifndef LF_REGISTERS_H",
        "#define LF_REGISTERS_H",
        "",
    ]
    for register in Register:
        lines += [*_register(register), ""]
    lines += [
        "/* Of every accelerator of this version. */",
        *(f"#define LF_FIXED_{register.name} 0x{value:08X}u" for register, value in FIXED.items()),
    ]
    for name in ("WORD_BYTES", "BEAT_BYTES"):
        lines.append(f"#define LF_{name} {getattr(tables, name)}u")
    lines += [f"#define LF_PAGE_BYTES {PAGE_BYTES}u", f"#define LF_COUNTERS {len(tables.Counter)}u"]
    for name, (prefix, members) in ENUMS.items():
        lines += ["", *_enum(name, prefix, members)]
    lines += [
        "",
        "/* X(name, offset) for every register. */",
        *_each("LF_EACH_REGISTER", (f"{r.name.lower()}, 0x{r:03x}u" for r in Register)),
    ]
    for name, (_, members) in ENUMS.items():
        plural = f"LF_EACH_{name.removeprefix('lf_').upper()}"
        rows = (f'{member.name}, {int(member)}, "{member.about}"' for member in members)
        lines += ["", "/* X(NAME, number, what it means). */", *_each(plural, rows)]
    return "\n".join((*lines, "", "#endif", ""))


def words() -> str:
    """Where things are in a manifest."""
    lines = [
        f"/* The manifest of a command stream. {MADE} */",
        "#ifndef LF_MANIFEST_H",
        "#define LF_MANIFEST_H",
        "",
    ]
    lines += [f"#define LF_MANIFEST_MAGIC_VALUE 0x{manifest.MAGIC:08X}u"]
    for name, (prefix, members) in WORDS.items():
        lines += [f"#define {prefix}WORDS {len(members)}u", "", *_enum(name, prefix, members)]
    return "\n".join((*lines, "", "#endif", ""))


def _register(register: Register) -> Iterator[str]:
    yield f"/* {register.about} ({register.access.value}) */"
    yield f"#define LF_REG_{register.name} 0x{register:03x}u"
    if register.of.reset:
        yield f"#define LF_RESET_{register.name} {register.of.reset}u"
    for field in register.of.fields:
        low = register.layout.offsets[field.name]
        name = f"LF_{register.name}_{field.name.upper()}"
        yield f"#define {name} 0x{field.most << low:x}u /* {field.about} */"
        if field.bits > 1:
            yield f"#define {name}_SHIFT {low}"


def _enum(name: str, prefix: str, members: type[IntEnum]) -> Iterator[str]:
    yield f"/* {(members.__doc__ or '').strip()} */"
    yield f"enum {name} {{"
    for k, member in enumerate(members):
        about = f" /* {member.about} */" if isinstance(member, tables.Told) else ""
        yield f"    {prefix}{member.name} = {int(member)}{',' if k + 1 < len(members) else ''}{about}"
    yield "};"


def _each(name: str, rows: Iterator[str]) -> Iterator[str]:
    lines = [f"#define {name}(X)", *(f"    X({row})" for row in rows)]
    yield from (f"{line} \\" for line in lines[:-1])
    yield lines[-1]
