"""PTX text to a syntax tree, by recursive descent.

Only what the checker gives a meaning to is read; everything else stops with file and line.  Names are looked up
and instructions are compared with the table of operations in :mod:`verify.ptx.program`.
"""

from __future__ import annotations

from pathlib import Path

from verify.ptx.errors import PtxError
from verify.ptx.lexer import Token, tokens
from verify.ptx.tree import (
    Address,
    Block,
    Directive,
    Entry,
    Immediate,
    Instruction,
    Label,
    Location,
    Module,
    Name,
    Offset,
    Operand,
    Pair,
    Param,
    Predicate,
    RegisterDeclaration,
    Section,
    Sink,
    SourceFile,
    Statement,
    Variable,
    Vector,
)

__all__ = ["WIDTHS", "parse", "parse_file"]

WIDTHS = {
    "pred": 1,
    **{f"{letter}{width}": width for letter in "bus" for width in (8, 16, 32, 64)},
    **{"f16": 16, "f16x2": 32, "bf16": 16, "bf16x2": 32, "f32": 32, "f64": 64},
}
"""Width in bits of every fundamental type."""

_SPACES = ("shared", "global", "const", "local")
_LIMITS = ("maxntid", "reqntid", "minnctapersm", "maxnreg", "blocksareclusters", "reqnctapercluster")
_LINKAGES = ("visible", "extern", "weak")
_PRAGMAS = ("nounroll", "used_bytes_mask")
_MAX_DEPTH = 16
_MAX_BYTES = 1 << 32


def parse_file(path: str | Path) -> Module:
    """Read a PTX file; see :func:`parse`."""
    return parse(Path(path).read_text(encoding="utf-8", errors="replace"), file=str(path))


def parse(text: str, *, file: str = "<ptx>") -> Module:
    """Read a PTX text.

    Law (tested on every sample): ``parse(print_module(parse(text))) == parse(text)``.

    Args:
        text: a whole module, as a compiler writes it.
        file: the name that errors give.

    Raises:
        PtxError: something that is not PTX, or PTX that the checker gives no meaning to.

    >>> module = parse('''
    ... .version 9.0
    ... .target sm_90a
    ... .address_size 64
    ... .visible .entry nothing() { ret; }''')
    >>> module.target, module.entry().body.statements
    ('sm_90a', (Instruction(opcode='ret', operands=(), predicate=None, line=5),))
    """
    return _Parser(text, file).module()


class _Parser:
    """A cursor over tokens; each method reads one construct."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.tokens = tokens(text, file=file)
        last = self.tokens[-1].line if self.tokens else 1
        self.tokens.append(Token("end", "end of text", last, len(text), len(text)))
        self.at = 0

    # --- cursor -----------------------------------------------------------------------------------------------

    @property
    def here(self) -> Token:
        return self.tokens[self.at]

    def fail(self, reason: str, token: Token | None = None) -> PtxError:
        return PtxError(reason, file=self.file, line=(token or self.here).line)

    def next(self) -> Token:
        token = self.tokens[self.at]
        if token.kind == "end":
            raise self.fail("the text ends in the middle of a statement")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.here.text == text and self.here.kind in ("sign", "directive", "word"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.fail(f"expected {text!r}, found {self.here.text[:40]!r}")

    def take(self, kind: str, what: str) -> Token:
        if self.here.kind != kind:
            raise self.fail(f"expected {what}, found {self.here.text[:40]!r}")
        return self.next()

    def word(self, what: str) -> str:
        return self.take("word", what).text

    # --- numbers ----------------------------------------------------------------------------------------------

    def number(self) -> Immediate:
        token = self.take("number", "a number")
        text = token.text.removesuffix("U")
        if text[:2] in ("0f", "0F"):
            return Immediate(int(text[2:], 16), bits=32)
        if text[:2] in ("0d", "0D"):
            return Immediate(int(text[2:], 16), bits=64)
        try:
            value = int(text, 8) if text[0] == "0" and text.isdigit() else int(text, 0)
        except ValueError:
            raise self.fail(f"{token.text!r} is not an integer", token) from None
        if value >= 1 << 64:
            raise self.fail(f"{token.text} does not fit 64 bits", token)
        return Immediate(value)

    def signed(self) -> Immediate:
        if self.accept("-"):
            positive = self.number()
            if positive.bits or positive.value > 1 << 63:
                raise self.fail("a minus sign stands only before an integer of at most 63 bits")
            return Immediate(-positive.value)
        return self.number()

    def integer(self, what: str) -> int:
        token = self.here
        value = self.signed()
        if value.bits:
            raise self.fail(f"{what} must be an integer", token)
        return value.value

    # --- module -----------------------------------------------------------------------------------------------

    def module(self) -> Module:
        version, target = self.header()
        files: list[SourceFile] = []
        variables: list[Variable] = []
        entries: list[Entry] = []
        sections: list[Section] = []
        while self.here.kind != "end":
            line = self.here.line
            linkage = self.linkage()
            kind = self.take("directive", "a directive").text[1:]
            if kind == "entry":
                entries.append(self.entry(linkage, line))
            elif kind in _SPACES and kind != "local":
                variables.append(self.variable(kind, linkage, line))
            elif kind == "file" and not linkage:
                files.append(self.source_file(line))
            elif kind == "section" and not linkage:
                sections.append(self.section(line))
            else:
                hint = "; a device function must be inlined" if kind in ("func", "alias", "callprototype") else ""
                raise PtxError(f"no meaning is given to '.{kind}' at the top level{hint}", file=self.file, line=line)
        return Module(version, target, tuple(files), tuple(variables), tuple(entries), tuple(sections), self.file)

    def header(self) -> tuple[tuple[int, int], str]:
        self.expect(".version")
        token = self.take("number", "a version such as 9.0")
        major, dot, minor = token.text.partition(".")
        if not dot or not 6 <= int(major) <= 9:
            raise self.fail(f"PTX version {token.text} is not supported (6.0 to 9.x are)", token)
        self.expect(".target")
        token = self.here
        target = self.word("a target such as sm_90a")
        if not target.startswith("sm_"):
            raise self.fail(f"target {target!r} is not supported", token)
        if self.here.text == ",":
            raise self.fail("target options such as 'debug' are not supported")
        self.expect(".address_size")
        if self.integer("the address size") != 64:
            raise self.fail("only 64-bit addresses are supported")
        return (int(major), int(minor)), target

    def linkage(self) -> str:
        for name in _LINKAGES:
            if self.accept(f".{name}"):
                return name
        return ""

    def source_file(self, line: int) -> SourceFile:
        index = self.integer("a file index")
        name = self.take("string", "a file name").text[1:-1]
        rest = []
        while self.accept(","):
            rest.append(str(self.integer("a time stamp or size")))
        return SourceFile(index, name, ", ".join(rest), line)

    def section(self, line: int) -> Section:
        name = self.take("directive", "a section name").text
        self.expect("{")
        words: list[str] = []
        while not self.accept("}"):
            token = self.next()
            if token.text == "{":
                raise self.fail("a section holds no inner braces", token)
            words.append(token.text)
        return Section(name, " ".join(words), line)

    # --- variables and parameters -----------------------------------------------------------------------------

    def align(self) -> int:
        if not self.accept(".align"):
            return 0
        value = self.integer("an alignment")
        if value < 1 or value & (value - 1) or value > 1 << 20:
            raise self.fail(f"alignment {value} is not a power of two up to 2^20")
        return value

    def type(self) -> str:
        token = self.take("directive", "a type such as .b32")
        if token.text[1:] not in WIDTHS:
            raise self.fail(f"type '{token.text}' is not supported", token)
        return token.text[1:]

    def count(self) -> tuple[int | None, bool]:
        """The brackets after a name: number of elements (``None`` when open), and whether there were none."""
        if not self.accept("["):
            return 1, True
        if self.accept("]"):
            return None, False
        total = self.integer("an array size")
        self.expect("]")
        if not 1 <= total <= _MAX_BYTES:
            raise self.fail(f"array size {total} is out of range")
        if self.here.text == "[":
            raise self.fail("arrays of arrays are not supported")
        return total, False

    def variable(self, space: str, linkage: str, line: int) -> Variable:
        align = self.align()
        type_ = self.type()
        if type_ == "pred":
            raise self.fail("a predicate is not addressable")
        name = self.word("a variable name")
        count, scalar = self.count()
        init = self.initialiser(space, type_, count) if self.accept("=") else None
        self.expect(";")
        if count is None and not (space == "shared" and linkage == "extern"):
            raise self.fail(f"{name!r}: only extern shared memory may be open-ended")
        if linkage == "extern" and count is not None:
            raise self.fail(f"{name!r}: extern variables of another module are not supported")
        return Variable(space, type_, name, count, scalar, align, init, linkage, line)

    def initialiser(self, space: str, type_: str, count: int | None) -> tuple[int, ...]:
        if space not in ("global", "const"):
            raise self.fail(f".{space} variables have no initialisers")
        values: list[int] = []
        if self.accept("{"):
            while True:
                values.append(self.element(WIDTHS[type_]))
                if self.accept("}"):
                    break
                self.expect(",")
        else:
            values.append(self.element(WIDTHS[type_]))
        if count is None or len(values) > count:
            raise self.fail("more initial values than elements")
        return tuple(values)

    def element(self, width: int) -> int:
        token = self.here
        value = self.signed()
        if (value.bits and value.bits != width) or not -(1 << (width - 1)) <= value.value < 1 << width:
            raise self.fail(f"initial value {token.text} does not fit {width} bits", token)
        return value.value % (1 << width)

    def param(self) -> Param:
        line = self.here.line
        self.expect(".param")
        align = self.align()
        type_ = self.type()
        pointer: list[str] = []
        if self.accept(".ptr"):
            if self.here.text in (".global", ".shared", ".const", ".local"):
                pointer.append(self.next().text[1:])
            pointer.append(f"align {self.align() or 1}")
        name = self.word("a parameter name")
        count, scalar = self.count()
        if count is None or (not scalar and WIDTHS[type_] != 8):
            raise self.fail(f"parameter {name!r}: an array parameter must be of bytes and of known size")
        if count > 1 << 16:
            raise self.fail(f"parameter {name!r} is larger than any parameter can be")
        return Param(type_, name, None if scalar else count, align, tuple(pointer), line)

    # --- kernels ----------------------------------------------------------------------------------------------

    def entry(self, linkage: str, line: int) -> Entry:
        name = self.word("a kernel name")
        params: list[Param] = []
        if self.accept("("):
            while not self.accept(")"):
                if params:
                    self.expect(",")
                params.append(self.param())
        limits: list[Directive] = []
        while self.here.text != "{":
            limits.append(self.limit())
        return Entry(name, tuple(params), tuple(limits), self.block(0), linkage, line)

    def limit(self) -> Directive:
        token = self.take("directive", "'{' or a directive such as .maxntid")
        name = token.text[1:]
        if name not in _LIMITS:
            raise self.fail(f"no meaning is given to '.{name}' on a kernel", token)
        values: list[int] = []
        if name != "blocksareclusters":
            values.append(self.integer("an argument"))
        while values and self.accept(","):
            values.append(self.integer("an argument"))
        if name == "reqnctapercluster" and set(values) != {1}:
            raise self.fail("clusters of more than one block are not supported", token)
        if len(values) > 3 or any(not 1 <= value <= 1 << 16 for value in values):
            raise self.fail(f"arguments of '.{name}' are out of range", token)
        return Directive(name, tuple(str(value) for value in values), token.line)

    def block(self, depth: int) -> Block:
        line = self.here.line
        self.expect("{")
        if depth > _MAX_DEPTH:
            raise self.fail(f"more than {_MAX_DEPTH} scopes inside one another")
        statements: list[Statement] = []
        while not self.accept("}"):
            statements.append(self.statement(depth))
        return Block(tuple(statements), line)

    def statement(self, depth: int) -> Statement:
        token = self.here
        if token.text == "{":
            return self.block(depth + 1)
        if token.kind == "directive":
            return self.directive()
        if token.kind == "word" and self.tokens[self.at + 1].text == ":":
            self.at += 2
            return Label(token.text, token.line)
        return self.instruction()

    def directive(self) -> Statement:
        token = self.next()
        name = token.text[1:]
        if name == "reg":
            return self.register(token.line)
        if name in ("shared", "local", "global", "const"):
            return self.variable(name, "", token.line)
        if name == "loc":
            return self.location()
        if name == "pragma":
            text = self.take("string", "a pragma in quotes").text[1:-1]
            self.expect(";")
            if text.split()[:1] not in [[known] for known in _PRAGMAS]:
                raise self.fail(f"no meaning is given to pragma {text!r}", token)
            return Directive("pragma", (text,), token.line)
        raise self.fail(f"no meaning is given to '.{name}' in a kernel", token)

    def register(self, line: int) -> RegisterDeclaration | Block:
        type_ = self.type()
        declared = [self.one_register(type_, line)]
        while self.accept(","):
            declared.append(self.one_register(type_, line))
        self.expect(";")
        if len(declared) > 1:
            raise self.fail("several names in one .reg are not supported; write one .reg for each")
        return declared[0]

    def one_register(self, type_: str, line: int) -> RegisterDeclaration:
        name = self.word("a register name")
        if not self.accept("<"):
            return RegisterDeclaration(type_, name, None, line)
        count = self.integer("a number of registers")
        self.expect(">")
        if not 1 <= count <= 1 << 24:
            raise self.fail(f"{count} registers are out of range")
        return RegisterDeclaration(type_, name, count, line)

    def location(self) -> Location:
        file, line, column = (self.integer("a number in .loc") for _ in range(3))
        rest: list[str] = []
        while self.accept(","):
            key = self.word("function_name or inlined_at")
            if key == "function_name":
                label = self.word("a label")
                rest.append(f"function_name {label}" + (f"+{self.integer('an offset')}" if self.accept("+") else ""))
            elif key == "inlined_at":
                rest.append("inlined_at " + " ".join(str(self.integer("a number in .loc")) for _ in range(3)))
            else:
                raise self.fail(f"no meaning is given to {key!r} in .loc")
        return Location(file, line, column, ", ".join(rest))

    # --- instructions -----------------------------------------------------------------------------------------

    def instruction(self) -> Instruction:
        line = self.here.line
        predicate = None
        if self.accept("@"):
            negated = self.accept("!")
            predicate = Predicate(self.word("a predicate"), negated)
        opcode = self.word("an instruction")
        operands: list[Operand] = []
        if not self.accept(";"):
            operands.append(self.operand())
            while not self.accept(";"):
                self.expect(",")
                operands.append(self.operand())
        return Instruction(opcode, tuple(operands), predicate, line)

    def operand(self) -> Operand:
        if self.accept("["):
            return self.address()
        if self.accept("{"):
            items = [self.item()]
            while not self.accept("}"):
                self.expect(",")
                items.append(self.item())
            return Vector(tuple(items))
        first = self.item()
        if isinstance(first, Immediate):
            return first
        if self.accept("|"):
            second = self.item()
            if isinstance(second, Immediate):
                raise self.fail("a number cannot stand after '|'")
            return Pair(first, second)
        if isinstance(first, Name) and self.here.text in ("+", "-"):
            return Offset(first, self.offset())
        return first

    def item(self) -> Name | Immediate | Sink:
        if self.here.kind == "word":
            text = self.next().text
            return Sink() if text == "_" else Name(text)
        return self.signed()

    def address(self) -> Address:
        base = self.item()
        if isinstance(base, Sink):
            raise self.fail("'_' is not an address")
        offset = self.offset() if self.here.text in ("+", "-") else 0
        self.expect("]")
        return Address(base, offset)

    def offset(self) -> int:
        negative = self.next().text == "-"
        value = self.integer("an offset")
        if not -(1 << 31) <= value < 1 << 32:
            raise self.fail(f"offset {value} is out of range")
        return -value if negative else value
