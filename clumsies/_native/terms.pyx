# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Search terms of a text: the one analyser behind index and query (`search-terms.v1`).

Words are runs of letters, digits and combining marks. The rules, in the order they apply:

* NFKC first; case is looked at (camelCase) and then folded fully. Zero-width joiners, soft
  hyphens and variation selectors vanish.
* An ordinary word gives one term: its stem if it is ASCII letters, else its folded form and,
  where they differ, the bare form, without the diacritics of Latin, Greek and Cyrillic letters.
  A query asks for the bare form alone: every text with either has it, and asking for both
  would count the word twice.
* Words joined by one of ``/ - . _`` give the whole, unstemmed, then the same for the pieces,
  cut at ``/`` first, then ``-``, ``.``, ``_``. ``v1.0.21`` also gives ``1.0.21``.
* A run such as ``httpServer``, ``HTTPServer`` or ``sha256`` gives the whole (letters: stem and
  unstemmed form) and its pieces. Letters part from digits only where there are two letters or
  more (``x86``, ``1960s`` stay whole); a single character cut off so is no term (``utf8``).
* ``C++``, ``C#`` and ``.NET`` keep their signs and give the bare word too. ``'s``, ``'t``,
  ``'re``, ``'ve``, ``'ll``, ``'d``, ``'m`` after a word are left out.
* Runs of Han, kana and Hangul, and runs of Thai, Lao, Khmer and Myanmar, give overlapping
  pairs of characters; a run of one gives that character. Any other word beside them is its own.
* A run of more than 64 characters is one term, its first 64; a joined whole of more than 64 is
  left out and its pieces are kept.

A term consists of ASCII lower-case letters, digits, ``- _ . / + #`` and characters beyond
ASCII: FTS5's `ascii` tokenizer with these as `tokenchars` takes each term as one token.
"""

import threading
import unicodedata

from cpython.mem cimport PyMem_Free
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from "Python.h":
    void* PyUnicode_DATA(object text)
    Py_UCS4* PyUnicode_AsUCS4Copy(object text) except NULL
    object PyUnicode_FromKindAndData(int kind, const void* buffer, Py_ssize_t size)

KERNEL_VERSION = 1
TERM_LIMIT = 64
CACHE_LIMIT = 200_000


cdef enum:
    LIMIT = 64              # characters of one term, before folding
    KEEP_BYTES = 1 << 20    # a working buffer larger than this is given back after the call

cdef enum:                  # classes of characters
    SEPARATOR = 0
    LOWER = 1
    UPPER = 2
    LETTER = 3              # a letter without case
    DIGIT = 4
    MARK = 5                # belongs to the word it follows
    CJK = 6                 # Han, kana, Hangul: written without spaces between words
    UNSPACED = 7            # Thai, Lao, Khmer, Myanmar, with their vowel signs
    JOINER = 8              # - . / _
    APOSTROPHE = 9
    PLUS = 10
    HASH = 11
    VANISHING = 12          # removed before the scan

cdef enum:                  # kinds of tokens
    STEM = 0                # `at` is an entry: its stem
    UNSTEMMED = 1           # `at` is an entry: its key, nothing where the stem is the same
    TEXT = 2                # `at` is an offset into the literal text: `size` bytes of UTF-8
    WORD = 3                # `at` is an offset into the source: `size` characters, to be folded

cdef struct Token:
    int64_t at
    int32_t size
    uint8_t kind
    uint8_t variant         # another form of the token before it, dropped or kept with that one

cdef struct Entry:          # one ASCII word that was met, with its stem
    uint64_t hashed
    int64_t key
    int64_t stem
    int32_t key_size
    int32_t stem_size       # -1: not stemmed yet

cdef struct Bytes:
    uint8_t* data
    int64_t size
    int64_t room

cdef struct State:
    Token* tokens
    int64_t n_tokens
    int64_t tokens_room
    Bytes text              # literal terms of this call
    const uint8_t* classes  # one class a character; not used for ASCII texts
    Entry* entries
    int64_t n_entries
    int64_t entries_room
    int32_t* slots          # open addressing: an entry's index, or -1
    int64_t n_slots
    Bytes arena             # keys and stems of the entries
    bint failed             # out of memory: reported once, after the scan

ctypedef fused CH:
    uint8_t                 # ASCII text
    uint32_t                # UCS-4 text

cdef uint8_t[256] ASCII_CLASS
cdef uint8_t[256] ASCII_FOLD


cdef void _fill_ascii() noexcept:
    cdef int c
    for c in range(256):
        ASCII_CLASS[c] = SEPARATOR
        ASCII_FOLD[c] = <uint8_t>c
    for c in range(26):
        ASCII_CLASS[97 + c] = LOWER
        ASCII_CLASS[65 + c] = UPPER
        ASCII_FOLD[65 + c] = <uint8_t>(97 + c)
    for c in range(48, 58):
        ASCII_CLASS[c] = DIGIT
    for c in (0x2D, 0x2E, 0x2F, 0x5F):
        ASCII_CLASS[c] = JOINER
    ASCII_CLASS[0x27] = APOSTROPHE
    ASCII_CLASS[0x2B] = PLUS
    ASCII_CLASS[0x23] = HASH


_fill_ascii()

# (first, last, class) of the scripts that are cut into pairs; letters and, for UNSPACED, marks.
_PAIRED = (
    (0x0E00, 0x0EFF, UNSPACED),    # Thai, Lao
    (0x1000, 0x109F, UNSPACED),    # Myanmar
    (0x1780, 0x17FF, UNSPACED),    # Khmer
    (0xA9E0, 0xA9FF, UNSPACED),    # Myanmar extended
    (0xAA60, 0xAA7F, UNSPACED),
    (0x1100, 0x11FF, CJK),         # Hangul jamo
    (0x2E80, 0x2FDF, CJK),         # radicals
    (0x3005, 0x3007, CJK),         # iteration mark, closing mark, zero
    (0x3021, 0x3029, CJK),
    (0x3031, 0x3035, CJK),
    (0x3038, 0x303C, CJK),
    (0x3040, 0x31FF, CJK),         # kana, bopomofo, compatibility jamo
    (0x3400, 0x4DBF, CJK),
    (0x4E00, 0x9FFF, CJK),
    (0xA960, 0xA97F, CJK),
    (0xAC00, 0xD7FF, CJK),         # Hangul syllables
    (0xF900, 0xFAFF, CJK),
    (0xFF66, 0xFFDC, CJK),         # half-width kana and jamo
    (0x1AFF0, 0x1B16F, CJK),       # kana supplements
    (0x20000, 0x3FFFF, CJK),
)
_VANISHING = frozenset(
    [0x00AD, 0x034F, 0x061C, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2060, 0xFEFF]
    + list(range(0xFE00, 0xFE10))
    + list(range(0xE0100, 0xE01F0))
)
# Letters that Unicode does not decompose into a base and a mark.
_BARE = str.maketrans("\u0111\u0127\u0131\u0142\u00f8\u0167", "dhilot")


def _character_class(code: int) -> int:
    """The class of one character beyond ASCII."""
    if code in _VANISHING:
        return VANISHING
    if code == 0x2019 or code == 0x02BC:
        return APOSTROPHE
    if code == 0x2010 or code == 0x2011:
        return JOINER
    char = chr(code)
    category = unicodedata.category(char)
    kind = category[0]
    for first, last, paired in _PAIRED:
        if first <= code <= last and (kind == "L" or category == "Nl" or
                                      (kind == "M" and paired == UNSPACED)):
            return paired
    if kind == "L":
        if category == "Lu" or category == "Lt":
            return UPPER
        return LOWER if category == "Ll" else LETTER
    if kind == "N":
        return DIGIT
    return MARK if kind == "M" else SEPARATOR


def _without_diacritics(word: str) -> str:
    """`word` without the combining marks on Latin, Greek and Cyrillic letters.

    The breve of Cyrillic stays: it makes a letter of its own.
    """
    kept = []
    strip = False
    code = 0
    for char in unicodedata.normalize("NFD", word):
        if unicodedata.category(char) == "Mn":
            if strip and not (char == "\u0306" and 0x0400 <= code < 0x0530):
                continue
        else:
            code = ord(char)
            strip = code < 0x0530 or 0x1E00 <= code < 0x2000 or 0x2C60 <= code < 0x2C80 \
                or 0xA640 <= code < 0xA6A0 or 0xA720 <= code < 0xA800
        kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept)).translate(_BARE)


cdef void reserve(State* st, Bytes* buffer, int64_t more) noexcept nogil:
    cdef int64_t room
    cdef uint8_t* data
    if buffer.size + more <= buffer.room:
        return
    room = (buffer.size + more) * 2 + 4096
    data = <uint8_t*>realloc(buffer.data, room)
    if data == NULL:
        st.failed = True
        return
    buffer.data = data
    buffer.room = room


cdef inline void push(State* st, int kind, int64_t at, int64_t size, bint variant) noexcept nogil:
    cdef int64_t room
    cdef Token* tokens
    cdef Token* token
    if st.n_tokens == st.tokens_room:
        room = st.tokens_room * 2 + 1024
        tokens = <Token*>realloc(st.tokens, room * sizeof(Token))
        if tokens == NULL:
            st.failed = True
            return
        st.tokens = tokens
        st.tokens_room = room
    token = &st.tokens[st.n_tokens]
    token.at = at
    token.size = <int32_t>size
    token.kind = <uint8_t>kind
    token.variant = variant
    st.n_tokens += 1


cdef void rehash(State* st, int64_t n_slots) noexcept nogil:
    cdef int64_t i, slot
    cdef int32_t* slots = <int32_t*>malloc(n_slots * sizeof(int32_t))
    if slots == NULL:
        st.failed = True
        return
    memset(slots, 0xFF, n_slots * sizeof(int32_t))
    for i in range(st.n_entries):
        slot = <int64_t>(st.entries[i].hashed & <uint64_t>(n_slots - 1))
        while slots[slot] >= 0:
            slot = (slot + 1) & (n_slots - 1)
        slots[slot] = <int32_t>i
    free(st.slots)
    st.slots = slots
    st.n_slots = n_slots


cdef int64_t new_entry(
    State* st, const uint8_t* word, int64_t size, uint64_t hashed
) noexcept nogil:
    cdef Entry* entries
    cdef int64_t room, slot
    if st.n_entries == st.entries_room:
        room = st.entries_room * 2 + 1024
        entries = <Entry*>realloc(st.entries, room * sizeof(Entry))
        if entries == NULL:
            st.failed = True
            return -1
        st.entries = entries
        st.entries_room = room
    if (st.n_entries + 1) * 2 > st.n_slots:
        rehash(st, st.n_slots * 2 if st.n_slots else 4096)
    reserve(st, &st.arena, size)
    if st.failed:
        return -1
    entries = &st.entries[st.n_entries]
    entries.hashed = hashed
    entries.key = st.arena.size
    entries.key_size = <int32_t>size
    entries.stem = 0
    entries.stem_size = -1
    memcpy(st.arena.data + st.arena.size, word, size)
    st.arena.size += size
    slot = <int64_t>(hashed & <uint64_t>(st.n_slots - 1))
    while st.slots[slot] >= 0:
        slot = (slot + 1) & (st.n_slots - 1)
    st.slots[slot] = <int32_t>st.n_entries
    st.n_entries += 1
    return st.n_entries - 1


cdef inline uint64_t mix(uint64_t hashed, uint8_t byte) noexcept nogil:
    return (hashed ^ byte) * <uint64_t>0x100000001B3


cdef inline int64_t entry_of(
    State* st, const uint8_t* word, int64_t size, uint64_t hashed
) noexcept nogil:
    """The entry of a folded ASCII word, made if new; -1 if out of memory."""
    cdef int64_t slot
    cdef int32_t found
    cdef Entry* entry
    hashed ^= hashed >> 32
    if st.n_slots:
        slot = <int64_t>(hashed & <uint64_t>(st.n_slots - 1))
        while True:
            found = st.slots[slot]
            if found < 0:
                break
            entry = &st.entries[found]
            if (
                entry.hashed == hashed
                and entry.key_size == size
                and memcmp(st.arena.data + entry.key, word, size) == 0
            ):
                return found
            slot = (slot + 1) & (st.n_slots - 1)
    return new_entry(st, word, size, hashed)


cdef inline uint8_t class_at(State* st, const CH* source, int64_t i) noexcept nogil:
    if CH is uint8_t:
        return ASCII_CLASS[source[i]]
    else:
        return st.classes[i]


cdef inline bint is_letter(uint8_t kind) noexcept nogil:
    return LOWER <= kind <= LETTER


cdef inline bint is_word(uint8_t kind) noexcept nogil:
    return LOWER <= kind <= MARK


cdef inline bint starts_word(uint8_t kind) noexcept nogil:
    return LOWER <= kind <= DIGIT


cdef void emit_whole(State* st, const CH* source, int64_t start, int64_t end) noexcept nogil:
    """The characters as they are, folded, never stemmed."""
    cdef int64_t i
    if CH is uint32_t:
        for i in range(start, end):
            if source[i] >= 128:
                push(st, WORD, start, end - start, False)
                return
    reserve(st, &st.text, end - start)
    if st.failed:
        return
    push(st, TEXT, st.text.size, end - start, False)
    for i in range(start, end):
        st.text.data[st.text.size] = ASCII_FOLD[<uint8_t>source[i]]
        st.text.size += 1


cdef void emit_piece(
    State* st, const CH* source, int64_t start, int64_t end, bint unstemmed
) noexcept nogil:
    """A run without inner boundaries, or a run as a whole: stemmed if it is ASCII letters."""
    cdef uint8_t[LIMIT] word
    cdef uint64_t hashed = <uint64_t>0xCBF29CE484222325
    cdef int64_t i, entry
    for i in range(start, end):
        if CH is uint32_t:
            if source[i] >= 128:
                push(st, WORD, start, end - start, False)
                return
        if class_at(st, source, i) > UPPER:
            emit_whole(st, source, start, end)
            return
        word[i - start] = ASCII_FOLD[<uint8_t>source[i]]
        hashed = mix(hashed, word[i - start])
    entry = entry_of(st, word, end - start, hashed)
    push(st, STEM, entry, 0, False)
    if unstemmed:
        push(st, UNSTEMMED, entry, 0, True)


cdef inline bint is_boundary(
    State* st, const CH* source, int64_t p, int64_t end, uint8_t before, int64_t letters
) noexcept nogil:
    """Whether a piece of a run starts at `p`; `letters` letters stand right before it."""
    cdef uint8_t kind = class_at(st, source, p)
    cdef uint8_t after = class_at(st, source, p + 1) if p + 1 < end else <uint8_t>SEPARATOR
    if kind == UPPER and before == LOWER:
        return True
    if kind == UPPER and before == UPPER:
        return after == LOWER and p + 2 < end and class_at(st, source, p + 2) == LOWER
    if kind == DIGIT:
        return letters >= 2
    if before == DIGIT and is_letter(kind):
        return is_letter(after)
    return False


cdef void emit_split(State* st, const CH* source, int64_t start, int64_t end) noexcept nogil:
    """A run with capitals or digits inside: the whole, then its pieces if there are any."""
    cdef int64_t p, piece = start, letters = 0
    cdef uint8_t kind, before = SEPARATOR
    cdef bint cut = False
    for p in range(start, end):
        kind = class_at(st, source, p)
        if kind == MARK:
            continue
        if p > start and is_boundary(st, source, p, end, before, letters):
            if not cut:
                emit_piece(st, source, start, end, True)
                cut = True
            if p - piece > 1:
                emit_piece(st, source, piece, p, False)
            piece = p
        letters = letters + 1 if is_letter(kind) else 0
        before = kind
    if not cut:
        emit_piece(st, source, start, end, False)
    elif end - piece > 1:
        emit_piece(st, source, piece, end, False)


cdef void emit_run(State* st, const CH* source, int64_t start, int64_t end) noexcept nogil:
    """A run of letters, digits and marks."""
    cdef uint8_t[LIMIT] word
    cdef uint64_t hashed = <uint64_t>0xCBF29CE484222325
    cdef int64_t i, uppers = 0
    cdef bint plain = True
    cdef uint8_t kind
    if end - start > LIMIT:
        emit_whole(st, source, start, start + LIMIT)
        return
    for i in range(start, end):
        kind = class_at(st, source, i)
        uppers += kind == UPPER
        if CH is uint32_t:
            plain = plain and kind <= UPPER and source[i] < 128
        else:
            plain = plain and kind <= UPPER
        word[i - start] = ASCII_FOLD[<uint8_t>source[i]]
        hashed = mix(hashed, word[i - start])
    if plain and (
        uppers == 0
        or uppers == end - start
        or (uppers == 1 and class_at(st, source, start) == UPPER)
    ):
        push(st, STEM, entry_of(st, word, end - start, hashed), 0, False)
    else:
        emit_split(st, source, start, end)


cdef inline CH separator_of(int level, const CH* source) noexcept nogil:
    """The joiner that cuts at a level: / first, then - . _ ; `source` only picks the type."""
    if level == 0:
        return 0x2F
    if level == 1:
        return 0x2D
    return 0x2E if level == 2 else 0x5F


cdef bint is_version(State* st, const CH* source, int64_t start, int64_t end) noexcept nogil:
    """Whether the characters are a v and digits, as at the front of v1.0.21."""
    cdef int64_t i
    if end - start < 2 or (source[start] != 0x76 and source[start] != 0x56):
        return False
    for i in range(start + 1, end):
        if class_at(st, source, i) != DIGIT:
            return False
    return True


cdef void emit_joined(
    State* st, const CH* source, int64_t start, int64_t end, int level
) noexcept nogil:
    """A compound: the whole, then the pieces of the outermost joiner, each in the same way."""
    cdef int64_t i, piece
    cdef CH separator
    while start < end and class_at(st, source, start) == JOINER:
        start += 1
    while end > start and class_at(st, source, end - 1) == JOINER:
        end -= 1
    while level < 4:
        separator = separator_of(level, source)
        i = start
        while i < end and source[i] != separator:
            i += 1
        if i < end:
            break
        level += 1
    if level == 4:
        if start < end:
            emit_run(st, source, start, end)
        return
    if end - start <= LIMIT:
        emit_whole(st, source, start, end)
        if level == 2 and is_version(st, source, start, i):
            emit_whole(st, source, start + 1, end)
    piece = start
    while True:
        emit_joined(st, source, piece, i, level + 1)
        if i == end:
            return
        piece = i + 1
        i = piece
        while i < end and source[i] != separator:
            i += 1


cdef bint joins(State* st, const CH* source, int64_t start, int64_t end) noexcept nogil:
    """Whether these joiners hold two runs together: one joiner, underscores around at most one
    other, or a slash and the dot of a hidden file."""
    if end - start == 1:
        return True
    while start < end and source[start] == 0x5F:
        start += 1
    while end > start and source[end - 1] == 0x5F:
        end -= 1
    if end - start <= 1:
        return True
    return end - start == 2 and source[start] == 0x2F and source[start + 1] == 0x2E


cdef int64_t suffix_end(State* st, const CH* source, int64_t i, int64_t n) noexcept nogil:
    """Where an apostrophe at `i` and the short ending after it end; `i` if there is none."""
    cdef int64_t end = i + 1
    cdef CH first, second
    while end < n and is_word(class_at(st, source, end)):
        end += 1
        if end - i > 3:
            return i
    if end - i == 1:
        return i
    first = source[i + 1] | 0x20
    if end - i == 2:
        if first == 0x73 or first == 0x74 or first == 0x64 or first == 0x6D:  # s t d m
            return end
        return i
    second = source[i + 2] | 0x20
    if second == 0x65 and (first == 0x72 or first == 0x76):                   # re ve
        return end
    return end if first == 0x6C and second == 0x6C else i                     # ll


cdef int64_t sign_end(State* st, const CH* source, int64_t i, int64_t n) noexcept nogil:
    """Where the signs of C++ or C# at `i` end; `i` if there are none."""
    cdef uint8_t kind = class_at(st, source, i) if i < n else <uint8_t>SEPARATOR
    cdef int64_t end = i
    if kind == HASH:
        end = i + 1
    elif kind == PLUS and i + 1 < n and class_at(st, source, i + 1) == PLUS:
        end = i + 2
    if end == i or end == n:
        return end
    kind = class_at(st, source, end)
    return i if is_word(kind) or kind == PLUS or kind == HASH or kind == CJK else end


cdef int64_t scan_word(State* st, const CH* source, int64_t start, int64_t n) noexcept nogil:
    """Emit the word at `start`; return where it ends."""
    cdef int64_t i = start, p, end, signs
    cdef bint joined = False
    while True:
        while i < n and is_word(class_at(st, source, i)):
            i += 1
        p = i
        while p < n and class_at(st, source, p) == JOINER:
            p += 1
        if p == i or p == n:
            break
        if not starts_word(class_at(st, source, p)) or not joins(st, source, i, p):
            break
        joined = True
        i = p
    end = i
    if start > 0 and source[start - 1] == 0x2E and is_letter(class_at(st, source, start)):
        if start == 1 or not (
            is_word(class_at(st, source, start - 2)) or source[start - 2] == 0x2E
            or class_at(st, source, start - 2) == CJK
        ):
            if end - start < LIMIT:
                emit_whole(st, source, start - 1, end)
    if i < n and is_letter(class_at(st, source, i - 1)):
        if class_at(st, source, i) == APOSTROPHE:
            i = suffix_end(st, source, i, n)
        elif not joined:
            signs = sign_end(st, source, i, n)
            if signs > i and signs - start <= LIMIT:
                emit_whole(st, source, start, signs)
                i = signs
    if joined:
        emit_joined(st, source, start, end, 0)
    else:
        emit_run(st, source, start, end)
    return i


cdef inline int64_t put_utf8(uint8_t* to, uint32_t c) noexcept nogil:
    if c < 0x80:
        to[0] = <uint8_t>c
        return 1
    if c < 0x800:
        to[0] = <uint8_t>(0xC0 | (c >> 6))
        to[1] = <uint8_t>(0x80 | (c & 0x3F))
        return 2
    if c < 0x10000:
        to[0] = <uint8_t>(0xE0 | (c >> 12))
        to[1] = <uint8_t>(0x80 | ((c >> 6) & 0x3F))
        to[2] = <uint8_t>(0x80 | (c & 0x3F))
        return 3
    to[0] = <uint8_t>(0xF0 | (c >> 18))
    to[1] = <uint8_t>(0x80 | ((c >> 12) & 0x3F))
    to[2] = <uint8_t>(0x80 | ((c >> 6) & 0x3F))
    to[3] = <uint8_t>(0x80 | (c & 0x3F))
    return 4


cdef int64_t scan_pairs(State* st, const CH* source, int64_t start, int64_t n) noexcept nogil:
    """Emit the character pairs of the run at `start`; return where it ends."""
    cdef uint8_t run = class_at(st, source, start), kind
    cdef int64_t end = start + 1, i, at
    while end < n:
        kind = class_at(st, source, end)
        if kind != run and kind != MARK:
            break
        end += 1
    for i in range(start, max(end - 1, start + 1)):
        reserve(st, &st.text, 8)
        if st.failed:
            return n
        at = st.text.size
        st.text.size += put_utf8(st.text.data + st.text.size, source[i])
        if end - start > 1:
            st.text.size += put_utf8(st.text.data + st.text.size, source[i + 1])
        push(st, TEXT, at, st.text.size - at, False)
    return end


cdef void scan(State* st, const CH* source, int64_t n) noexcept nogil:
    cdef int64_t i = 0
    cdef uint8_t kind
    while i < n:
        kind = class_at(st, source, i)
        if starts_word(kind):
            i = scan_word(st, source, i, n)
        elif kind == CJK or kind == UNSPACED:
            i = scan_pairs(st, source, i, n)
        else:
            i += 1


cdef class Analyzer:
    """Search terms of texts; one instance may be used by several threads, which take turns.

    `stem` is called with distinct ASCII lower-case words and returns as many stems, ASCII
    letters or digits. Stems are remembered; a memory that has grown past CACHE_LIMIT words is
    emptied at the start of the next call. `drop` holds folded words that a query leaves out.
    """

    cdef State state
    cdef object stem, lock
    cdef frozenset drop
    cdef dict forms                 # a word beyond ASCII -> ((UTF-8 bytes, stemmed?), ...)
    cdef uint8_t** pages            # classes of 256 characters each, made when first met

    def __cinit__(self):
        self.pages = <uint8_t**>calloc(0x1100, sizeof(uint8_t*))
        if self.pages == NULL:
            raise MemoryError

    def __init__(self, stem, drop):
        self.stem = stem
        self.drop = frozenset(drop)
        self.forms = {}
        self.lock = threading.Lock()

    def __dealloc__(self):
        cdef int i
        if self.pages != NULL:
            for i in range(0x1100):
                free(self.pages[i])
            free(self.pages)
        free(self.state.tokens)
        free(self.state.text.data)
        free(self.state.entries)
        free(self.state.slots)
        free(self.state.arena.data)

    def document_terms(self, text: str) -> str:
        """The terms in text order, joined by single spaces."""
        with self.lock:
            try:
                self._analyse(text)
                return self._joined()
            finally:
                self._release()

    def query_terms(self, text: str, drop=None) -> list[str]:
        """The terms in text order, repeats kept, without dropped words unless all are dropped.

        `drop` stands in for the analyser's own where the caller knows the language better.
        """
        dropped = self.drop if drop is None else drop
        terms = self.surfaces(text)
        kept = [term for term, surface in terms if surface not in dropped]
        return kept or [term for term, _ in terms]

    def surfaces(self, text: str) -> list[tuple[str, str]]:
        """(term, the folded word it stands for) of a query in text order, nothing dropped."""
        with self.lock:
            try:
                self._analyse(text)
                return self._surfaces()
            finally:
                self._release()

    cdef _analyse(self, str text):
        """Fill `state.tokens` with stems known and no WORD left."""
        cdef State* st = &self.state
        cdef const uint8_t* ascii_data
        cdef int64_t n = len(text)
        if st.n_entries > CACHE_LIMIT:
            self._forget()
        st.n_tokens = 0
        st.text.size = 0
        st.failed = False
        if text.isascii():
            ascii_data = <const uint8_t*>PyUnicode_DATA(text)
            with nogil:
                scan(st, ascii_data, n)
        else:
            self._scan_wide(unicodedata.normalize("NFKC", text))
        if st.failed:
            raise MemoryError
        self._stem_new()

    cdef _scan_wide(self, str text):
        cdef State* st = &self.state
        cdef int64_t n = len(text), kept = 0, i
        cdef uint32_t* source = <uint32_t*>PyUnicode_AsUCS4Copy(text)
        cdef uint8_t* classes = <uint8_t*>malloc(n + 1)
        cdef uint8_t kind
        try:
            if classes == NULL:
                raise MemoryError
            for i in range(n):
                kind = self._class_of(source[i])
                if kind == VANISHING:
                    continue
                classes[kept] = kind
                source[kept] = source[i]
                if kind == JOINER and source[i] >= 128:
                    source[kept] = 0x2D
                kept += 1
            st.classes = classes
            with nogil:
                scan(st, source, kept)
            if not st.failed:
                self._fold_words(source)
        finally:
            st.classes = NULL
            free(classes)
            PyMem_Free(source)

    cdef inline uint8_t _class_of(self, uint32_t code) except? 255:
        if code < 128:
            return ASCII_CLASS[code]
        if self.pages[code >> 8] == NULL:
            self._make_page(code >> 8)
        return self.pages[code >> 8][code & 255]

    cdef int _make_page(self, uint32_t number) except -1:
        cdef int i
        cdef uint8_t* page = <uint8_t*>malloc(256)
        if page == NULL:
            raise MemoryError
        for i in range(256):
            page[i] = _character_class(number * 256 + i)
        self.pages[number] = page
        return 0

    cdef _fold_words(self, const uint32_t* source):
        """Replace each WORD by its folded forms: the original, then the one without diacritics."""
        cdef State* st = &self.state
        cdef Token* tokens = st.tokens
        cdef int64_t n = st.n_tokens, i
        cdef bint variant
        for i in range(n):
            if tokens[i].kind == WORD:
                break
        else:
            return
        st.tokens = NULL
        st.n_tokens = 0
        st.tokens_room = 0
        try:
            for i in range(n):
                if tokens[i].kind != WORD:
                    push(st, tokens[i].kind, tokens[i].at, tokens[i].size, tokens[i].variant)
                    continue
                word = PyUnicode_FromKindAndData(4, source + tokens[i].at, tokens[i].size)
                variant = False
                for form in self._forms_of(word):
                    self._push_form(form, variant)
                    variant = True
                if st.failed:
                    return
        finally:
            free(tokens)

    cdef _push_form(self, bytes form, bint variant):
        cdef State* st = &self.state
        cdef const uint8_t* data = <const uint8_t*>(<char*>form)
        cdef int64_t size = len(form), i
        cdef uint64_t hashed = <uint64_t>0xCBF29CE484222325
        if size <= LIMIT and form.isalpha():
            for i in range(size):
                hashed = mix(hashed, data[i])
            push(st, STEM, entry_of(st, data, size, hashed), 0, variant)
            return
        reserve(st, &st.text, size)
        if not st.failed:
            push(st, TEXT, st.text.size, size, variant)
            memcpy(st.text.data + st.text.size, data, size)
            st.text.size += size

    cdef tuple _forms_of(self, str word):
        found = self.forms.get(word)
        if found is None:
            if len(self.forms) >= CACHE_LIMIT:
                self.forms.clear()
            folded = unicodedata.normalize("NFKC", word.casefold())
            bare = _without_diacritics(folded)
            found = (folded.encode(),) if bare == folded else (folded.encode(), bare.encode())
            self.forms[word] = found
        return found

    cdef _stem_new(self):
        """Ask for the stems of all entries that have none."""
        cdef State* st = &self.state
        cdef int64_t first = st.n_entries, i
        cdef Entry* entry
        cdef bytes stemmed
        while first > 0 and st.entries[first - 1].stem_size < 0:
            first -= 1
        if first == st.n_entries:
            return
        words = []
        for i in range(first, st.n_entries):
            entry = &st.entries[i]
            words.append(
                PyUnicode_DecodeUTF8(<char*>st.arena.data + entry.key, entry.key_size, NULL)
            )
        stems = self.stem(words)
        if len(stems) != len(words):
            raise ValueError(f"the stemmer gave {len(stems)} stems for {len(words)} words")
        for word in stems:
            if not (word.isascii() and word.isalnum()):
                raise ValueError("a stem must be ASCII letters or digits")
        for i in range(first, st.n_entries):
            stemmed = stems[i - first].encode("ascii")
            reserve(st, &st.arena, len(stemmed))
            if st.failed:
                raise MemoryError
            entry = &st.entries[i]
            entry.stem = st.arena.size
            memcpy(st.arena.data + st.arena.size, <char*>stemmed, len(stemmed))
            st.arena.size += len(stemmed)
            entry.stem_size = <int32_t>len(stemmed)

    cdef _joined(self):
        cdef State* st = &self.state
        cdef int64_t total = 0, i, size = 0
        cdef const uint8_t* data = NULL
        cdef uint8_t* to
        cdef uint8_t* out
        for i in range(st.n_tokens):
            total += self._bytes_of(&st.tokens[i], &data) + 1
        out = <uint8_t*>malloc(total + 1)
        if out == NULL:
            raise MemoryError
        try:
            to = out
            for i in range(st.n_tokens):
                size = self._bytes_of(&st.tokens[i], &data)
                if size:
                    memcpy(to, data, size)
                    to[size] = 0x20
                    to += size + 1
            size = to - out
            return PyUnicode_DecodeUTF8(<char*>out, max(size - 1, 0), NULL)
        finally:
            free(out)

    cdef inline int64_t _bytes_of(self, Token* token, const uint8_t** data) noexcept nogil:
        """The bytes of a token's term; 0 where it adds nothing."""
        cdef State* st = &self.state
        cdef Entry* entry
        if token.kind == TEXT:
            data[0] = st.text.data + token.at
            return token.size
        entry = &st.entries[token.at]
        data[0] = st.arena.data + (entry.stem if token.kind == STEM else entry.key)
        if token.kind == STEM:
            return entry.stem_size
        if entry.stem_size == entry.key_size and not memcmp(
            st.arena.data + entry.stem, st.arena.data + entry.key, entry.key_size
        ):
            return 0
        return entry.key_size

    cdef list _surfaces(self):
        """(term, folded word it stands for) of each token; of two forms of a word the bare one."""
        cdef State* st = &self.state
        cdef int64_t i, size
        cdef const uint8_t* data = NULL
        cdef Entry* entry
        terms = []
        surface = ""
        for i in range(st.n_tokens):
            size = self._bytes_of(&st.tokens[i], &data)
            term = PyUnicode_DecodeUTF8(<char*>data, size, NULL)
            if not st.tokens[i].variant:
                surface = term
                if st.tokens[i].kind == STEM:
                    entry = &st.entries[st.tokens[i].at]
                    surface = PyUnicode_DecodeUTF8(
                        <char*>st.arena.data + entry.key, entry.key_size, NULL
                    )
            if st.tokens[i].variant and st.tokens[i].kind != UNSTEMMED:
                terms.pop()
            if size:
                terms.append((term, surface))
        return terms

    cdef void _forget(self) noexcept:
        self.state.n_entries = 0
        self.state.arena.size = 0
        if self.state.n_slots:
            memset(self.state.slots, 0xFF, self.state.n_slots * sizeof(int32_t))

    cdef void _release(self) noexcept:
        """Give back what one unusually long text made grow; drop words left without a stem."""
        cdef State* st = &self.state
        if st.n_entries and st.entries[st.n_entries - 1].stem_size < 0:
            self._forget()
        if st.text.room > KEEP_BYTES:
            free(st.text.data)
            st.text.data = NULL
            st.text.room = 0
        if st.tokens_room * <int64_t>sizeof(Token) > KEEP_BYTES:
            free(st.tokens)
            st.tokens = NULL
            st.tokens_room = 0
        st.text.size = 0
        st.n_tokens = 0
