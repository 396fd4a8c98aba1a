# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""Block structure of a Markdown body: where headings and top-level blocks stand, in bytes.

CommonMark 0.31.2 blocks, GFM tables and YAML front matter in one pass over the lines. Inline
content is never parsed. Offsets are byte offsets into the body as it was given; a line ends with
LF, CRLF or a lone CR; NUL is an ordinary character; a byte order mark belongs to no block. Any
bytes are accepted, valid UTF-8 or not; offsets of valid UTF-8 never fall inside a character.

The method is that of the specification's appendix: a stack of open containers (block quotes and
list items) and at most one open leaf; each line is matched against the stack, opens new blocks,
and leaves text. Four decisions where texts leave room:

- A link reference definition is a block of its own, not part of a paragraph. What follows a
  complete definition is therefore neither lazy nor barred from interrupting. While a definition
  is incomplete its lines are collected; if it fails, the scan goes back to its first line (or to
  the line of the failed title) and reads it as a paragraph. A collected region ends at the next
  bracket or quote of its own kind, so no byte is read more than a bounded number of times.
- A table is recognised before any other block, from its header line and the line below it, as
  markdown-it does; the row count is not limited.
- A block ends after its last line that is not blank, also where blank lines formally belong to
  it (an unclosed fence). A line `>` is not blank.
- Containers beyond MAX_CONTAINER_DEPTH are not opened: their markers are text.

Front matter is taken only if it is closed and looks like a YAML mapping; see `front_matter_end`.
"""

from typing import NamedTuple

from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memset

KERNEL_VERSION = 1

cdef enum:
    C_NONE = 0
    C_HEADING = 1
    C_PARAGRAPH = 2
    C_CODE = 3
    C_FENCE = 4
    C_HTML = 5
    C_QUOTE = 6
    C_LIST = 7
    C_LIST_ITEM = 8
    C_TABLE = 9
    C_BREAK = 10
    C_REFERENCE = 11
    C_FRONT_MATTER = 12
    # Bounds the work per line and the stack; hand-written text stays below ten.
    MAX_DEPTH = 100
    # Limit of the specification for characters between the brackets of a link label.
    MAX_LABEL = 999
    # Parentheses within parentheses of a bare link destination; the specification asks for three.
    MAX_PARENS = 32
    # Window of the line end search: a text of lone CRs must not search for LF to its end each time.
    WINDOW = 1024

HEADING = C_HEADING
PARAGRAPH = C_PARAGRAPH
CODE = C_CODE
FENCE = C_FENCE
HTML = C_HTML
QUOTE = C_QUOTE
LIST = C_LIST
LIST_ITEM = C_LIST_ITEM
TABLE = C_TABLE
BREAK = C_BREAK
REFERENCE = C_REFERENCE
FRONT_MATTER = C_FRONT_MATTER
MAX_CONTAINER_DEPTH = MAX_DEPTH

ctypedef const unsigned char * Bytes

# State of the link reference definition that the open paragraph may still be.
cdef enum Definition:
    DEF_NONE = 0         # it is a paragraph
    DEF_LABEL = 1        # inside the brackets
    DEF_DESTINATION = 2  # after the colon
    DEF_BARE = 3         # complete, a title may follow on the next line
    DEF_TITLE = 4        # inside a title
    DEF_FULL = 5         # complete with its title

cdef struct Line:
    Py_ssize_t start
    Py_ssize_t eol      # of the content, before the line end
    Py_ssize_t next     # start of the following line
    Py_ssize_t nsp      # first byte not yet consumed that is no space or tab
    Py_ssize_t column   # consumed columns, tabs at multiples of four
    Py_ssize_t ncolumn  # column of nsp
    Py_ssize_t kill     # a thematic break is known to fail before this byte
    bint blank          # the raw line has spaces and tabs only
    Py_ssize_t pipe     # the first bar at or after nsp as it was when looked for, -1: not looked

cdef struct Container:
    bint is_item
    bint empty           # an item whose first line is blank and that has no child yet
    Py_ssize_t indent    # columns a line needs to belong to the item

cdef struct Block:
    Py_ssize_t start
    Py_ssize_t end
    int kind
    int depth

cdef struct Heading:
    Py_ssize_t start
    Py_ssize_t end
    Py_ssize_t text_start
    Py_ssize_t text_end
    int level
    int depth

cdef struct Scanner:
    Bytes data
    Py_ssize_t size
    Py_ssize_t pos          # start of the next line
    bint failed             # out of memory
    bint has_cr
    Container stack[MAX_DEPTH]
    int depth
    # The open leaf.
    int leaf
    unsigned char fence_char
    Py_ssize_t fence_length
    int html_kind
    bint delimiter_due      # the next table line is its delimiter row
    # The open paragraph.
    Py_ssize_t para_start
    Py_ssize_t text_start
    Py_ssize_t text_end
    # The definition it may be.
    int definition
    Py_ssize_t first_next   # end of the paragraph's first line
    Py_ssize_t first_text_end
    Py_ssize_t title_line   # start of the line where the title began, -1: the destination's line
    unsigned char title_close
    Py_ssize_t label_length
    bint label_seen
    # Output.
    Block * blocks
    Py_ssize_t n_blocks
    Py_ssize_t cap_blocks
    Py_ssize_t top          # the last block of depth 0
    Py_ssize_t item         # the last LIST_ITEM
    unsigned char list_mark  # marker of the top-level list that may continue, else 0
    Heading * headings
    Py_ssize_t n_headings
    Py_ssize_t cap_headings


# --- bytes and lines ----------------------------------------------------------------------------

cdef inline bint is_space(unsigned char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef inline bint is_letter(unsigned char c) noexcept nogil:
    return c'a' <= (c | 0x20) <= c'z'


cdef inline bint is_digit(unsigned char c) noexcept nogil:
    return c'0' <= c <= c'9'


cdef inline Py_ssize_t skip_spaces(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    while p < end and is_space(data[p]):
        p += 1
    return p


cdef inline Py_ssize_t trim_right(Bytes data, Py_ssize_t low, Py_ssize_t end) noexcept nogil:
    while end > low and is_space(data[end - 1]):
        end -= 1
    return end


cdef inline Py_ssize_t find_byte(
    Bytes data, Py_ssize_t p, Py_ssize_t end, unsigned char c
) noexcept nogil:
    """Offset of the first `c` in [p, end), else `end`."""
    cdef Bytes hit
    if p >= end:
        return end
    hit = <Bytes> memchr(data + p, c, end - p)
    return end if hit == NULL else hit - data


cdef Py_ssize_t find_line_end(Scanner * s, Py_ssize_t p) noexcept nogil:
    cdef Py_ssize_t limit, hit
    if not s.has_cr:
        return find_byte(s.data, p, s.size, c'\n')
    while p < s.size:
        limit = min(p + WINDOW, s.size)
        hit = find_byte(s.data, p, limit, c'\n')
        hit = find_byte(s.data, p, hit, c'\r')
        if hit < limit:
            return hit
        p = limit
    return s.size


cdef inline void find_text(Scanner * s, Line * line, Py_ssize_t p) noexcept nogil:
    """Move `nsp` and `ncolumn` to the first text at or after `p`, which stands in `column`."""
    cdef Py_ssize_t column = line.column
    while p < line.eol:
        if s.data[p] == c' ':
            column += 1
        elif s.data[p] == c'\t':
            column += 4 - (column & 3)
        else:
            break
        p += 1
    line.nsp = p
    line.ncolumn = column


cdef void read_line(Scanner * s, Line * line, Py_ssize_t start) noexcept nogil:
    line.start = start
    line.eol = find_line_end(s, start)
    line.next = line.eol
    if line.next < s.size:
        line.next += 1
        if s.data[line.eol] == c'\r' and line.next < s.size and s.data[line.next] == c'\n':
            line.next += 1
    line.column = 0
    line.kill = start
    find_text(s, line, start)
    line.blank = line.nsp == line.eol
    line.pipe = -1


# --- output -------------------------------------------------------------------------------------

cdef void push_block(
    Scanner * s, int kind, Py_ssize_t start, Py_ssize_t end, int depth
) noexcept nogil:
    cdef Py_ssize_t capacity
    cdef void * grown
    if s.n_blocks == s.cap_blocks:
        capacity = 2 * s.cap_blocks + 64
        grown = realloc(s.blocks, capacity * sizeof(Block))
        if grown == NULL:
            s.failed = True
            return
        s.blocks = <Block *> grown
        s.cap_blocks = capacity
    s.blocks[s.n_blocks] = Block(start, end, kind, depth)
    if kind == C_LIST_ITEM:
        s.item = s.n_blocks
    else:
        s.top = s.n_blocks
    s.n_blocks += 1


cdef void push_heading(
    Scanner * s, int level, Py_ssize_t start, Py_ssize_t end, Py_ssize_t text_start,
    Py_ssize_t text_end
) noexcept nogil:
    cdef Py_ssize_t capacity
    cdef void * grown
    if s.n_headings == s.cap_headings:
        capacity = 2 * s.cap_headings + 64
        grown = realloc(s.headings, capacity * sizeof(Heading))
        if grown == NULL:
            s.failed = True
            return
        s.headings = <Heading *> grown
        s.cap_headings = capacity
    s.headings[s.n_headings] = Heading(start, end, text_start, text_end, level, s.depth)
    s.n_headings += 1


cdef void set_end(Scanner * s, Py_ssize_t end) noexcept nogil:
    """The open top-level block, and its open item, reach to `end`."""
    if s.top >= 0:
        s.blocks[s.top].end = end
        if s.blocks[s.top].kind == C_LIST:
            s.blocks[s.item].end = end


cdef inline void finish_line(Scanner * s, Line * line) noexcept nogil:
    if not line.blank:
        set_end(s, line.next)
    s.pos = line.next


cdef void add_child(Scanner * s, Line * line, int kind) noexcept nogil:
    """Note a new block, not a list item, in the innermost container."""
    if s.depth > 0:
        s.stack[s.depth - 1].empty = False
    else:
        s.list_mark = 0
        push_block(s, kind, line.start, line.next, 0)


cdef inline void open_leaf(Scanner * s, Line * line, int kind) noexcept nogil:
    add_child(s, line, kind)
    s.leaf = kind
    finish_line(s, line)


cdef inline void add_closed(Scanner * s, Line * line, int kind) noexcept nogil:
    add_child(s, line, kind)
    s.leaf = C_NONE
    finish_line(s, line)


# --- containers ---------------------------------------------------------------------------------

cdef int match_containers(Scanner * s, Line * line) noexcept nogil:
    """How many open containers the line continues; consumes their prefixes."""
    cdef int k
    cdef Container * box
    for k in range(s.depth):
        box = &s.stack[k]
        if box.is_item:
            if line.nsp == line.eol:
                if box.empty:
                    return k
                line.column = line.ncolumn
            elif line.ncolumn - line.column >= box.indent:
                line.column += box.indent
            else:
                return k
        elif line.nsp < line.eol and s.data[line.nsp] == c'>' and line.ncolumn - line.column < 4:
            consume_quote(s, line)
        else:
            return k
    return s.depth


cdef inline void consume_quote(Scanner * s, Line * line) noexcept nogil:
    line.column = line.ncolumn + 1
    find_text(s, line, line.nsp + 1)
    if line.ncolumn > line.column:
        line.column += 1


cdef void push_container(Scanner * s, bint is_item, bint empty, Py_ssize_t indent) noexcept nogil:
    s.stack[s.depth].is_item = is_item
    s.stack[s.depth].empty = empty
    s.stack[s.depth].indent = indent
    s.depth += 1


cdef Py_ssize_t list_marker(Scanner * s, Line * line, bint interrupts) noexcept nogil:
    """Length of the list marker at `nsp`, 0 if none; `interrupts`: by a paragraph's rules."""
    cdef Bytes data = s.data
    cdef Py_ssize_t p = line.nsp
    cdef unsigned char c = data[p]
    if c == c'-' or c == c'*' or c == c'+':
        p += 1
    elif is_digit(c):
        while p < line.eol and p - line.nsp < 10 and is_digit(data[p]):
            p += 1
        if p - line.nsp > 9 or p == line.eol or (data[p] != c'.' and data[p] != c')'):
            return 0
        if interrupts and not starts_at_one(data, line.nsp, p):
            return 0
        p += 1
    else:
        return 0
    if p < line.eol and not is_space(data[p]):
        return 0
    if interrupts and skip_spaces(data, p, line.eol) == line.eol:
        return 0
    return p - line.nsp


cdef inline bint starts_at_one(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    while p < end - 1 and data[p] == c'0':
        p += 1
    return p == end - 1 and data[p] == c'1'


cdef void open_item(Scanner * s, Line * line, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t indent = line.ncolumn - line.column
    cdef Py_ssize_t padding
    cdef bint blank
    cdef unsigned char mark = s.data[line.nsp + length - 1]
    if s.depth == 0:
        if s.list_mark != mark:
            push_block(s, C_LIST, line.start, line.next, 0)
            s.list_mark = mark
        push_block(s, C_LIST_ITEM, line.start, line.next, 1)
    else:
        s.stack[s.depth - 1].empty = False
    line.column = line.ncolumn + length
    find_text(s, line, line.nsp + length)
    blank = line.nsp == line.eol
    padding = line.ncolumn - line.column
    if blank or padding > 4:
        padding = 1
    if not blank:
        line.column += padding
    push_container(s, True, blank, indent + length + padding)


# --- single-line starts -------------------------------------------------------------------------

cdef int atx_level(Scanner * s, Line * line) noexcept nogil:
    """Level of an ATX heading at `nsp`, else 0."""
    cdef Py_ssize_t p = line.nsp
    while p < line.eol and p - line.nsp < 7 and s.data[p] == c'#':
        p += 1
    if p - line.nsp > 6 or (p < line.eol and not is_space(s.data[p])):
        return 0
    return <int> (p - line.nsp)


cdef void add_atx(Scanner * s, Line * line, int level) noexcept nogil:
    cdef Py_ssize_t low = skip_spaces(s.data, line.nsp + level, line.eol)
    cdef Py_ssize_t end = trim_right(s.data, low, line.eol)
    cdef Py_ssize_t p = end
    while p > low and s.data[p - 1] == c'#':
        p -= 1
    if p == low or (p < end and is_space(s.data[p - 1])):
        end = trim_right(s.data, low, p)
    push_heading(s, level, line.start, line.next, low, end)
    add_closed(s, line, C_HEADING)


cdef int setext_level(Scanner * s, Line * line) noexcept nogil:
    cdef Py_ssize_t p = line.nsp
    cdef unsigned char c = s.data[p]
    if c != c'=' and c != c'-':
        return 0
    while p < line.eol and s.data[p] == c:
        p += 1
    if skip_spaces(s.data, p, line.eol) != line.eol:
        return 0
    return 1 if c == c'=' else 2


cdef bint is_break(Scanner * s, Line * line) noexcept nogil:
    cdef Py_ssize_t p = line.nsp
    cdef Py_ssize_t count = 0
    cdef unsigned char mark = s.data[p]
    if p < line.kill or (mark != c'*' and mark != c'-' and mark != c'_'):
        return False
    while p < line.eol:
        if s.data[p] == mark:
            count += 1
        elif not is_space(s.data[p]):
            break
        p += 1
    if p == line.eol and count >= 3:
        return True
    line.kill = p
    return False


cdef Py_ssize_t fence_length(Scanner * s, Line * line) noexcept nogil:
    """Length of the fence that opens at `nsp`, else 0."""
    cdef Py_ssize_t p = line.nsp
    cdef unsigned char c = s.data[p]
    if c != c'`' and c != c'~':
        return 0
    while p < line.eol and s.data[p] == c:
        p += 1
    if p - line.nsp < 3:
        return 0
    if c == c'`' and find_byte(s.data, p, line.eol, c'`') < line.eol:
        return 0
    return p - line.nsp


cdef bint closes_fence(Scanner * s, Line * line) noexcept nogil:
    cdef Py_ssize_t p = line.nsp
    if line.ncolumn - line.column > 3:
        return False
    while p < line.eol and s.data[p] == s.fence_char:
        p += 1
    return p - line.nsp >= s.fence_length and skip_spaces(s.data, p, line.eol) == line.eol


# --- HTML blocks --------------------------------------------------------------------------------

# Each name between commas; kinds 6 and 1 of the specification.
cdef bytes BLOCK_NAMES_BYTES = (
    b",address,article,aside,base,basefont,blockquote,body,caption,center,col,colgroup,dd,details,"
    b"dialog,dir,div,dl,dt,fieldset,figcaption,figure,footer,form,frame,frameset,h1,h2,h3,h4,h5,"
    b"h6,head,header,hr,html,iframe,legend,li,link,main,menu,menuitem,nav,noframes,ol,optgroup,"
    b"option,p,param,search,section,summary,table,tbody,td,tfoot,th,thead,title,tr,track,ul,"
)
cdef bytes RAW_NAMES_BYTES = b",pre,script,style,textarea,"
cdef Bytes BLOCK_NAMES = BLOCK_NAMES_BYTES
cdef Bytes RAW_NAMES = RAW_NAMES_BYTES
cdef Py_ssize_t BLOCK_NAMES_SIZE = len(BLOCK_NAMES_BYTES)
cdef Py_ssize_t RAW_NAMES_SIZE = len(RAW_NAMES_BYTES)


cdef Py_ssize_t skip_name(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """End of the tag name at `p`; `p` if there is none."""
    if p < end and is_letter(data[p]):
        p += 1
        while p < end and (is_letter(data[p]) or is_digit(data[p]) or data[p] == c'-'):
            p += 1
    return p


cdef bint is_named(
    Bytes names, Py_ssize_t names_size, Bytes data, Py_ssize_t p, Py_ssize_t end
) noexcept nogil:
    """Whether data[p:end], in any case, is one of `names`."""
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t i
    if end - p < 1 or end - p > 10:
        return False
    while at + 1 < names_size:
        i = 0
        while p + i < end and (data[p + i] | 0x20) == names[at + 1 + i]:
            i += 1
        if p + i == end and names[at + 1 + i] == c',':
            return True
        at = find_byte(names, at + 1, names_size, c',')
    return False


cdef Py_ssize_t skip_attribute(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """End of the attribute whose name begins at `p`, -1 if it is malformed."""
    cdef Py_ssize_t q, begin
    cdef unsigned char c
    if not (is_letter(data[p]) or data[p] == c'_' or data[p] == c':'):
        return -1
    while p < end and (
        is_letter(data[p]) or is_digit(data[p]) or data[p] == c'_' or data[p] == c'.'
        or data[p] == c':' or data[p] == c'-'
    ):
        p += 1
    q = skip_spaces(data, p, end)
    if q == end or data[q] != c'=':
        return p
    q = skip_spaces(data, q + 1, end)
    if q == end:
        return -1
    c = data[q]
    if c == c'"' or c == c"'":
        q = find_byte(data, q + 1, end, c)
        return -1 if q == end else q + 1
    begin = q
    while q < end and not is_space(data[q]) and not (
        data[q] == c'"' or data[q] == c"'" or data[q] == c'=' or data[q] == c'<'
        or data[q] == c'>' or data[q] == c'`'
    ):
        q += 1
    return -1 if q == begin else q


cdef bint is_lone_tag(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """Whether [p, end), after `<`, is one complete open or closing tag and then spaces only."""
    cdef Py_ssize_t name
    cdef Py_ssize_t q = p
    cdef bint closing = p < end and data[p] == c'/'
    if closing:
        p += 1
    name = p
    p = skip_name(data, p, end)
    if p == name or (not closing and is_named(RAW_NAMES, RAW_NAMES_SIZE, data, name, p)):
        return False
    while True:
        q = skip_spaces(data, p, end)
        if q == end:
            return False
        if data[q] == c'>':
            break
        if closing:
            return False
        if data[q] == c'/':
            q += 1
            if q < end and data[q] == c'>':
                break
            return False
        if q == p:
            return False
        p = skip_attribute(data, q, end)
        if p < 0:
            return False
    return skip_spaces(data, q + 1, end) == end


cdef int html_start(Scanner * s, Line * line, bint lone_tag) noexcept nogil:
    """Kind 1-7 of the HTML block that starts at the `<` at `nsp`, else 0; 7 only if `lone_tag`."""
    cdef Bytes data = s.data
    cdef Py_ssize_t end = line.eol
    cdef Py_ssize_t p = line.nsp + 1
    cdef Py_ssize_t name, q
    if p == end:
        return 0
    if data[p] == c'?':
        return 3
    if data[p] == c'!':
        if end - p >= 3 and data[p + 1] == c'-' and data[p + 2] == c'-':
            return 2
        if end - p >= 8 and memcmp(data + p, b"![CDATA[", 8) == 0:
            return 5
        return 4 if end - p >= 2 and is_letter(data[p + 1]) else 0
    name = p + 1 if data[p] == c'/' else p
    q = skip_name(data, name, end)
    if q == name:
        return 0
    if q == end or is_space(data[q]) or data[q] == c'>':
        if name == p and is_named(RAW_NAMES, RAW_NAMES_SIZE, data, name, q):
            return 1
        if is_named(BLOCK_NAMES, BLOCK_NAMES_SIZE, data, name, q):
            return 6
    elif data[q] == c'/' and end - q >= 2 and data[q + 1] == c'>':
        if is_named(BLOCK_NAMES, BLOCK_NAMES_SIZE, data, name, q):
            return 6
    return 7 if lone_tag and is_lone_tag(data, p, end) else 0


cdef bint html_ends(Scanner * s, Line * line) noexcept nogil:
    """Whether the line meets the end condition of an open HTML block of kind 1-5."""
    cdef Bytes data = s.data
    cdef Py_ssize_t end = line.eol
    cdef Py_ssize_t p = line.nsp
    cdef Py_ssize_t q
    if s.html_kind == 1:
        while True:
            p = find_byte(data, p, end, c'<')
            if p + 2 >= end:
                return False
            p += 1
            if data[p] == c'/':
                q = skip_name(data, p + 1, end)
                if q < end and data[q] == c'>' and is_named(
                    RAW_NAMES, RAW_NAMES_SIZE, data, p + 1, q
                ):
                    return True
    while True:
        q = find_byte(data, p, end, c'>')
        if q == end:
            return False
        if s.html_kind == 4:
            return True
        if s.html_kind == 3 and q - line.nsp >= 1 and data[q - 1] == c'?':
            return True
        if s.html_kind == 2 and q - line.nsp >= 2 and memcmp(data + q - 2, b"--", 2) == 0:
            return True
        if s.html_kind == 5 and q - line.nsp >= 2 and memcmp(data + q - 2, b"]]", 2) == 0:
            return True
        p = q + 1


# --- tables -------------------------------------------------------------------------------------

cdef Py_ssize_t delimiter_columns(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """Number of columns of the delimiter row [p, end), 0 if it is none."""
    cdef Py_ssize_t columns = 0
    cdef Py_ssize_t begin, cell_end
    cdef bint first = True
    end = trim_right(data, p, end)
    if end - p < 2 or (data[p] == c'-' and is_space(data[p + 1])):
        return 0
    while p <= end:
        cell_end = find_byte(data, p, end, c'|')
        begin = skip_spaces(data, p, cell_end)
        if begin == cell_end:
            if not first and cell_end < end:
                return 0
        elif is_delimiter(data, begin, trim_right(data, begin, cell_end)):
            columns += 1
        else:
            return 0
        first = False
        p = cell_end + 1
    return columns


cdef bint is_delimiter(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t begin
    if data[p] == c':':
        p += 1
    begin = p
    while p < end and data[p] == c'-':
        p += 1
    if p == begin:
        return False
    if p < end and data[p] == c':':
        p += 1
    return p == end


cdef Py_ssize_t header_columns(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """Number of cells of the header row [p, end); an enclosing bar opens no cell."""
    cdef Py_ssize_t columns = 1
    cdef Py_ssize_t i
    cdef bint leading, trailing
    end = trim_right(data, p, end)
    if p == end:
        return 0
    for i in range(p, end):
        if data[i] == c'|' and (i == p or data[i - 1] != c'\\'):
            columns += 1
    leading = data[p] == c'|'
    trailing = data[end - 1] == c'|' and (end - 1 == p or data[end - 2] != c'\\')
    columns -= leading
    if trailing and columns > 0:
        columns -= 1
    return columns


cdef bint starts_table(Scanner * s, Line * line) noexcept nogil:
    """Whether the line from `nsp` is a header row and the line below a delimiter row to it."""
    cdef Line below
    cdef Py_ssize_t columns
    cdef unsigned char last
    if line.next == s.size:
        return False
    if line.pipe < line.nsp:
        line.pipe = find_byte(s.data, line.nsp, line.eol, c'|')
    if line.pipe == line.eol:
        return False
    read_line(s, &below, line.next)
    if below.blank:
        return False
    last = s.data[trim_right(s.data, below.nsp, below.eol) - 1]
    if last != c'|' and last != c'-' and last != c':':
        return False
    if match_containers(s, &below) < s.depth or below.nsp == below.eol:
        return False
    if below.ncolumn - below.column > 3:
        return False
    columns = delimiter_columns(s.data, below.nsp, below.eol)
    return columns > 0 and columns == header_columns(s.data, line.nsp, line.eol)


cdef bint ends_table(Scanner * s, Line * line) noexcept nogil:
    """Whether another block starts at the line, which stands where a row could."""
    cdef unsigned char c
    if line.nsp == line.eol or line.ncolumn - line.column > 3:
        return True
    c = s.data[line.nsp]
    if c == c'#':
        return atx_level(s, line) > 0
    if c == c'<':
        return html_start(s, line, False) > 0
    if c == c'`' or c == c'~':
        return fence_length(s, line) > 0
    if is_break(s, line):
        return True
    return s.depth < MAX_DEPTH and (c == c'>' or list_marker(s, line, False) > 0)


# --- paragraphs and link reference definitions --------------------------------------------------

cdef inline bint is_unresolved(Scanner * s) noexcept nogil:
    return s.leaf == C_PARAGRAPH and (
        s.definition == DEF_LABEL or s.definition == DEF_DESTINATION or s.definition == DEF_TITLE
    )


cdef inline bint opens_title(unsigned char c) noexcept nogil:
    return c == c'"' or c == c"'" or c == c'('


cdef void finish_reference(Scanner * s) noexcept nogil:
    """Close the paragraph as definitions; neighbouring definitions are one block."""
    cdef Block * block
    s.leaf = C_NONE
    if s.depth > 0:
        return
    block = &s.blocks[s.top]
    block.kind = C_REFERENCE
    if s.top > 0 and (block - 1).kind == C_REFERENCE and (block - 1).end == block.start:
        (block - 1).end = block.end
        s.n_blocks -= 1
        s.top -= 1


cdef void rewind(Scanner * s) noexcept nogil:
    """Give an unresolved definition up and continue the scan where it was last certain."""
    if s.definition == DEF_TITLE and s.title_line >= 0:
        s.pos = s.title_line
        set_end(s, s.pos)
        finish_reference(s)
        return
    s.definition = DEF_NONE
    s.pos = s.first_next
    s.text_end = s.first_text_end
    set_end(s, s.pos)


cdef Py_ssize_t feed_label(Scanner * s, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """Offset after `]:`, `end` if the label goes on, -1 if it is no label."""
    cdef unsigned char c
    while p < end:
        c = s.data[p]
        if c == c'[':
            return -1
        if c == c']':
            if not s.label_seen or s.label_length > MAX_LABEL:
                return -1
            if p + 1 == end or s.data[p + 1] != c':':
                return -1
            s.definition = DEF_DESTINATION
            return p + 2
        if c & 0xC0 != 0x80:
            s.label_length += 1
        if not is_space(c):
            s.label_seen = True
        if c == c'\\' and p + 1 < end and (
            s.data[p + 1] == c'[' or s.data[p + 1] == c']' or s.data[p + 1] == c'\\'
        ):
            s.label_length += 1
            p += 1
        p += 1
    s.label_length += 1
    return -1 if s.label_length > MAX_LABEL else end


cdef Py_ssize_t skip_destination(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """End of the link destination at `p`, -1 if there is none."""
    cdef Py_ssize_t begin = p
    cdef int parens = 0
    cdef unsigned char c
    if data[p] == c'<':
        p += 1
        while p < end and data[p] != c'>':
            if data[p] == c'<':
                return -1
            if data[p] == c'\\':
                p += 1
            p += 1
        return p + 1 if p < end else -1
    while p < end:
        c = data[p]
        if (c <= 0x20 and c != 0) or c == 0x7F:
            break
        if c == c'\\' and p + 1 < end and not is_space(data[p + 1]):
            p += 1
        elif c == c'(':
            parens += 1
            if parens > MAX_PARENS:
                return -1
        elif c == c')':
            if parens == 0:
                break
            parens -= 1
        p += 1
    return p if p > begin and parens == 0 else -1


cdef bint feed_title(Scanner * s, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    cdef unsigned char c
    while p < end:
        c = s.data[p]
        if c == s.title_close:
            s.definition = DEF_FULL
            return skip_spaces(s.data, p + 1, end) == end
        if c == c'(' and s.title_close == c')':
            return False
        p += 2 if c == c'\\' else 1
    return True


cdef bint open_title(
    Scanner * s, Py_ssize_t p, Py_ssize_t end, Py_ssize_t title_line
) noexcept nogil:
    if not opens_title(s.data[p]):
        return False
    s.title_close = c')' if s.data[p] == c'(' else s.data[p]
    s.title_line = title_line
    s.definition = DEF_TITLE
    return feed_title(s, p + 1, end)


cdef bint feed_definition(
    Scanner * s, Py_ssize_t p, Py_ssize_t end, Py_ssize_t line_start
) noexcept nogil:
    """Read the text [p, end) of one more line into the definition; False: it is none."""
    cdef Py_ssize_t q
    if s.definition == DEF_TITLE:
        return feed_title(s, p, end) or fail_title(s)
    if s.definition == DEF_BARE:
        return open_title(s, p, end, line_start) or fail_title(s)
    if s.definition == DEF_LABEL:
        p = feed_label(s, p, end)
        if p < 0 or s.definition == DEF_LABEL:
            return p >= 0
    p = skip_spaces(s.data, p, end)
    if p == end:
        return True
    p = skip_destination(s.data, p, end)
    if p < 0:
        return False
    q = skip_spaces(s.data, p, end)
    if q == end:
        s.definition = DEF_BARE
        return True
    return q > p and (open_title(s, q, end, -1) or fail_title(s))


cdef inline bint fail_title(Scanner * s) noexcept nogil:
    """A title that fails after its closing quote is still what `rewind` has to give up."""
    s.definition = DEF_TITLE
    return False


cdef void open_paragraph(Scanner * s, Line * line) noexcept nogil:
    open_leaf(s, line, C_PARAGRAPH)
    s.para_start = line.start
    s.text_start = line.nsp
    s.text_end = s.first_text_end = trim_right(s.data, line.nsp, line.eol)
    s.first_next = line.next
    s.definition = DEF_NONE
    if s.data[line.nsp] == c'[':
        s.definition = DEF_LABEL
        s.label_length = 0
        s.label_seen = False
        s.title_line = -1
        if not feed_definition(s, line.nsp + 1, line.eol, line.start):
            s.definition = DEF_NONE
        elif s.definition == DEF_FULL:
            finish_reference(s)


cdef void extend_paragraph(Scanner * s, Line * line) noexcept nogil:
    if s.definition != DEF_NONE and not feed_definition(s, line.nsp, line.eol, line.start):
        rewind(s)
        return
    s.text_end = trim_right(s.data, line.nsp, line.eol)
    finish_line(s, line)
    if s.definition == DEF_FULL:
        finish_reference(s)


cdef void add_setext(Scanner * s, Line * line, int level) noexcept nogil:
    push_heading(s, level, s.para_start, line.next, s.text_start, s.text_end)
    if s.depth == 0:
        s.blocks[s.top].kind = C_HEADING
    s.leaf = C_NONE
    finish_line(s, line)


# --- one line -----------------------------------------------------------------------------------

cdef bint continue_leaf(Scanner * s, Line * line) noexcept nogil:
    """Give the line to the open leaf, not a paragraph; False: the leaf is closed, the line free."""
    cdef bint blank = line.nsp == line.eol
    if s.leaf == C_FENCE:
        if not blank and closes_fence(s, line):
            s.leaf = C_NONE
        return True
    if s.leaf == C_HTML and s.html_kind < 6:
        if html_ends(s, line):
            s.leaf = C_NONE
        return True
    if s.leaf == C_HTML and not blank:
        return True
    if s.leaf == C_CODE and (blank or line.ncolumn - line.column > 3):
        return True
    if s.leaf == C_TABLE and (s.delimiter_due or not ends_table(s, line)):
        s.delimiter_due = False
        return True
    s.leaf = C_NONE
    return False


cdef inline bint interrupt(Scanner * s, int matched) noexcept nogil:
    """Close what the line does not continue; False: the scan went back instead."""
    if is_unresolved(s):
        rewind(s)
        return False
    s.leaf = C_NONE
    s.depth = matched
    return True


cdef bint open_blocks(Scanner * s, Line * line, int matched) noexcept nogil:
    """Open what starts at the line; True: the line is used up (or the scan went back)."""
    cdef bint lazy = matched < s.depth
    cdef bint text_open = s.leaf == C_PARAGRAPH
    cdef Py_ssize_t length
    cdef unsigned char c
    while line.nsp < line.eol:
        if line.ncolumn - line.column > 3:
            if text_open:
                return False
            open_leaf(s, line, C_CODE)
            return True
        if not lazy and starts_table(s, line):
            if interrupt(s, matched):
                s.delimiter_due = True
                open_leaf(s, line, C_TABLE)
            return True
        c = s.data[line.nsp]
        if c == c'>' and s.depth < MAX_DEPTH:
            if text_open and not interrupt(s, matched):
                return True
            add_child(s, line, C_QUOTE)
            push_container(s, False, False, 0)
            consume_quote(s, line)
        elif open_closed_or_leaf(s, line, c, matched, lazy, text_open):
            return True
        else:
            if s.depth >= MAX_DEPTH:
                return False
            length = list_marker(
                s, line, text_open and not lazy and s.definition == DEF_NONE
            )
            if length == 0:
                return False
            if text_open and not interrupt(s, matched):
                return True
            open_item(s, line, length)
        text_open = lazy = False
        matched = s.depth
    finish_line(s, line)
    return True


cdef bint open_closed_or_leaf(
    Scanner * s, Line * line, unsigned char c, int matched, bint lazy, bint text_open
) noexcept nogil:
    """Add the heading, fence, HTML block or thematic break at `nsp`; False: there is none."""
    cdef int kind
    cdef Py_ssize_t length
    if c == c'#':
        kind = atx_level(s, line)
        if kind and interrupt(s, matched):
            add_atx(s, line, kind)
        return kind > 0
    if c == c'`' or c == c'~':
        length = fence_length(s, line)
        if length and interrupt(s, matched):
            s.fence_char = c
            s.fence_length = length
            open_leaf(s, line, C_FENCE)
        return length > 0
    if c == c'<':
        kind = html_start(s, line, not text_open)
        if kind and interrupt(s, matched):
            s.html_kind = kind
            open_leaf(s, line, C_HTML)
            if kind < 6 and html_ends(s, line):
                s.leaf = C_NONE
        return kind > 0
    if text_open and not lazy and s.definition == DEF_NONE:
        kind = setext_level(s, line)
        if kind:
            add_setext(s, line, kind)
            return True
    if is_break(s, line):
        if interrupt(s, matched):
            add_closed(s, line, C_BREAK)
        return True
    return False


cdef void scan_line(Scanner * s) noexcept nogil:
    cdef Line line
    cdef int matched
    read_line(s, &line, s.pos)
    matched = match_containers(s, &line)
    if s.leaf != C_PARAGRAPH:
        if matched < s.depth:
            s.leaf = C_NONE
            s.depth = matched
        elif s.leaf != C_NONE and continue_leaf(s, &line):
            finish_line(s, &line)
            return
    elif s.definition == DEF_BARE and (
        line.nsp == line.eol or not opens_title(s.data[line.nsp])
    ):
        finish_reference(s)
        s.depth = matched
    if line.nsp == line.eol:
        if interrupt(s, matched):
            finish_line(s, &line)
        return
    if open_blocks(s, &line, matched):
        return
    if s.leaf == C_PARAGRAPH:
        extend_paragraph(s, &line)
    else:
        open_paragraph(s, &line)


cdef void scan_lines(Scanner * s) noexcept nogil:
    while not s.failed:
        if s.pos < s.size:
            scan_line(s)
        elif is_unresolved(s):
            rewind(s)
        else:
            break
    if s.leaf == C_PARAGRAPH and s.definition == DEF_BARE:
        finish_reference(s)


# --- front matter -------------------------------------------------------------------------------

cdef bint is_marker(Bytes data, Py_ssize_t p, Py_ssize_t end, unsigned char c) noexcept nogil:
    """Whether [p, end) is `c` three times and then spaces."""
    return (
        end - p >= 3 and data[p] == c and data[p + 1] == c and data[p + 2] == c
        and skip_spaces(data, p + 3, end) == end
    )


cdef bint is_yaml_key(Bytes data, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """Whether [p, end) begins with a key, quoted or plain, and a colon at a word's end.

    A plain key has letters, digits, spaces, `_ - . / + @ $ :` and non-ASCII characters; other
    punctuation, or a full stop before a space, is prose.
    """
    cdef unsigned char c = data[p]
    if c == c'"' or c == c"'":
        p = skip_spaces(data, find_byte(data, p + 1, end, c) + 1, end)
        return p < end and data[p] == c':' and (p + 1 == end or is_space(data[p + 1]))
    if not (is_letter(c) or is_digit(c) or c == c'_' or c == c'$' or c == c'@' or c >= 0x80):
        return False
    while p < end:
        c = data[p]
        if (c == c':' or c == c'.') and (p + 1 == end or is_space(data[p + 1])):
            return c == c':'
        if not (
            is_letter(c) or is_digit(c) or c >= 0x80 or c == c' ' or c == c'_' or c == c'-'
            or c == c'.' or c == c'/' or c == c'+' or c == c'@' or c == c'$' or c == c':'
        ):
            return False
        p += 1
    return False


cdef Py_ssize_t front_matter_end(Scanner * s) noexcept nogil:
    """Offset after the closing line of YAML front matter at `pos`, -1 if there is none.

    The first line is `---`, a later one `---` or `...` (spaces may follow). Between them every
    line is blank, a comment, indented, `key:` or `key: value`, `- item`, or begins with a closing
    `]` or `}`; the first that is neither blank nor a comment is a key. A block with neither keys
    nor anything else but blank lines is front matter without keys.
    """
    cdef Bytes data = s.data
    cdef Py_ssize_t p = s.pos
    cdef Line line
    cdef bint keys = False
    cdef bint comments = False
    cdef unsigned char c
    read_line(s, &line, p)
    if not is_marker(data, p, line.eol, c'-'):
        return -1
    while line.next < s.size:
        p = line.next
        read_line(s, &line, p)
        if is_marker(data, p, line.eol, c'-') or is_marker(data, p, line.eol, c'.'):
            return line.next if keys or not comments else -1
        if line.blank:
            continue
        c = data[p]
        if data[line.nsp] == c'#':
            comments = True
        elif is_yaml_key(data, p, line.eol):
            keys = True
        elif not keys or not (
            is_space(c) or c == c']' or c == c'}'
            or (c == c'-' and (p + 1 == line.eol or is_space(data[p + 1])))
        ):
            return -1
    return -1


# --- the public function ------------------------------------------------------------------------

class Blocks(NamedTuple):
    """What `scan` found; all offsets are bytes into the body."""

    content_start: int
    headings: list
    blocks: list


cdef void scan_body(Scanner * s) noexcept nogil:
    cdef Py_ssize_t end
    if s.size >= 3 and memcmp(s.data, b"\xef\xbb\xbf", 3) == 0:
        s.pos = 3
    s.has_cr = find_byte(s.data, 0, s.size, c'\r') < s.size
    end = front_matter_end(s)
    if end > 0:
        push_block(s, C_FRONT_MATTER, s.pos, end, 0)
        s.pos = end
    scan_lines(s)


def scan(bytes body not None):
    """Headings and blocks of a Markdown body.

    Returns `(content_start, headings, blocks)`. `content_start` is the offset after YAML front
    matter, 0 if there is none. A heading is `(level, start, end, text_start, text_end, depth)`:
    its lines `[start, end)` from a line start to after the last line end, its raw inline text
    without surrounding spaces, tabs and closing `#`s (over several lines: from the first text
    byte to the last, prefixes of containers between them included), and the number of block
    quotes and list items around it. A block is `(kind, start, end, depth)`: every top-level block
    (depth 0) in order, each LIST followed by its own items (LIST_ITEM, depth 1). Raises
    `MemoryError` if the results do not fit in memory. Linear in the body's length.
    """
    cdef const unsigned char[::1] view = body
    cdef Scanner s
    cdef Py_ssize_t i
    if view.shape[0] == 0:
        return Blocks(0, [], [])
    memset(&s, 0, sizeof(Scanner))
    s.data = &view[0]
    s.size = view.shape[0]
    s.top = s.item = -1
    try:
        with nogil:
            scan_body(&s)
        if s.failed:
            raise MemoryError("no memory for the blocks of this body")
        headings = [
            (
                s.headings[i].level, s.headings[i].start, s.headings[i].end,
                s.headings[i].text_start, s.headings[i].text_end, s.headings[i].depth,
            )
            for i in range(s.n_headings)
        ]
        blocks = [
            (s.blocks[i].kind, s.blocks[i].start, s.blocks[i].end, s.blocks[i].depth)
            for i in range(s.n_blocks)
        ]
        start = 0
        if s.n_blocks and s.blocks[0].kind == C_FRONT_MATTER:
            start = s.blocks[0].end
        return Blocks(start, headings, blocks)
    finally:
        free(s.blocks)
        free(s.headings)
