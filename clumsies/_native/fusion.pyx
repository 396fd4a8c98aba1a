# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reciprocal rank fusion (Cormack, Clarke, Büttcher 2009) for one query and for many.

`score(id) = Σ weight_i / (rrf_k + rank_i(id))` over the rankings that hold the id, ranks from 1,
added in the order of the rankings from 0.0, so the result is the same bit for bit everywhere.
Order: score descending, then best single rank ascending, then id ascending.

A ranking is a row of ids >= 0, best first, no repeats, ended by -1 or by the end of the row.
The caller (`clumsies.engine.fusion`) has checked dtypes and shapes; ids are checked here.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

KERNEL_VERSION = 1

cdef enum:
    BAD_ID = -1
    REPEATED = -2
    RUN = 12                    # length up to which insertion sort is the faster one

cdef struct Item:
    int64_t id
    double score
    int64_t best                # best single rank
    int32_t seen                # the last ranking that held the id
    int32_t shared              # 1: held by several rankings


cdef struct Scratch:
    Item* items                 # one an id, in order of first appearance
    Item* spare                 # the other half of the merge sort
    double* parts               # weight / (rrf_k + rank), one a rank
    int64_t* runs               # where sorted stretches start
    int64_t* slots              # open addressing: index of an item, or -1
    int64_t mask                # number of slots - 1


cdef int allocate(Scratch* scratch, int64_t n) except -1:
    """Room for `n` ids; at most half of the slots are ever taken."""
    cdef int64_t slots = 8
    while slots < 2 * n:
        slots *= 2
    scratch.items = <Item*>malloc((n + 1) * sizeof(Item))
    scratch.spare = <Item*>malloc((n + 1) * sizeof(Item))
    scratch.parts = <double*>malloc((n + 1) * sizeof(double))
    scratch.runs = <int64_t*>malloc((n + 2) * sizeof(int64_t))
    scratch.slots = <int64_t*>malloc(slots * sizeof(int64_t))
    scratch.mask = slots - 1
    if (
        scratch.items == NULL or scratch.spare == NULL
        or scratch.parts == NULL or scratch.runs == NULL or scratch.slots == NULL
    ):
        release(scratch)
        raise MemoryError
    for n in range(slots):
        scratch.slots[n] = -1
    return 0


cdef void release(Scratch* scratch) noexcept:
    free(scratch.items)
    free(scratch.spare)
    free(scratch.parts)
    free(scratch.runs)
    free(scratch.slots)


cdef void fill_parts(double* parts, int64_t n, double weight, double rrf_k) noexcept nogil:
    cdef int64_t rank
    for rank in range(1, n + 1):
        parts[rank - 1] = weight / (rrf_k + <double>rank)


cdef inline int64_t home(int64_t id, int64_t mask) noexcept nogil:
    cdef uint64_t mixed = <uint64_t>id * <uint64_t>0x9E3779B97F4A7C15
    return <int64_t>(mixed >> 32) & mask


cdef inline bint comes_before(const Item* a, const Item* b) noexcept nogil:
    if a.score != b.score:
        return a.score > b.score
    if a.best != b.best:
        return a.best < b.best
    return a.id < b.id


cdef int64_t add_ranking(
    Scratch* scratch, int64_t n, const int64_t* ids, int64_t size, const double* parts,
    int32_t number
) noexcept nogil:
    """Add one ranking, `parts[rank - 1]` a rank, to `n` items.

    Returns the new number of items, or BAD_ID or REPEATED.
    """
    cdef int64_t rank, slot, id
    cdef double part
    cdef Item* item
    for rank in range(1, size + 1):
        id = ids[rank - 1]
        if id < 0:
            if id != -1:
                return BAD_ID
            for slot in range(rank, size):
                if ids[slot] != -1:
                    return BAD_ID
            return n
        part = parts[rank - 1]
        slot = home(id, scratch.mask)
        while scratch.slots[slot] >= 0 and scratch.items[scratch.slots[slot]].id != id:
            slot = (slot + 1) & scratch.mask
        if scratch.slots[slot] < 0:
            scratch.slots[slot] = n
            item = &scratch.items[n]
            item.id = id
            item.score = 0.0 + part
            item.best = rank
            item.shared = 0
            n += 1
        else:
            item = &scratch.items[scratch.slots[slot]]
            if item.seen == number:
                return REPEATED
            item.score += part
            item.best = min(item.best, rank)
            item.shared = 1
        item.seen = number
    return n


cdef void clear(Scratch* scratch, int64_t n) noexcept nogil:
    """Empty the slots of the first `n` items, last in first out, so each is found by probing."""
    cdef int64_t i, slot
    for i in range(n - 1, -1, -1):
        slot = home(scratch.items[i].id, scratch.mask)
        while scratch.slots[slot] != i:
            slot = (slot + 1) & scratch.mask
        scratch.slots[slot] = -1


cdef int64_t shared_first(Item* items, Item* to, int64_t n) noexcept nogil:
    """Copy the ids of several rankings before the others, each part in its order; how many."""
    cdef int64_t i, shared = 0, at
    for i in range(n):
        shared += items[i].shared
    at = shared
    shared = 0
    for i in range(n):
        if items[i].shared:
            to[shared] = items[i]
            shared += 1
        else:
            to[at] = items[i]
            at += 1
    return shared


cdef void insertion_sort(Item* items, int64_t n) noexcept nogil:
    cdef int64_t i, j
    cdef Item item
    for i in range(1, n):
        item = items[i]
        j = i - 1
        while j >= 0 and comes_before(&item, &items[j]):
            items[j + 1] = items[j]
            j -= 1
        items[j + 1] = item


cdef void merge(
    const Item* items, Item* to, int64_t start, int64_t middle, int64_t end
) noexcept nogil:
    cdef int64_t i = start, j = middle, k = start
    while i < middle and j < end:
        if comes_before(&items[i], &items[j]):
            to[k] = items[i]
            i += 1
        else:
            to[k] = items[j]
            j += 1
        k += 1
    if i < middle:
        memcpy(&to[k], &items[i], (middle - i) * sizeof(Item))
    elif j < end:
        memcpy(&to[k], &items[j], (end - j) * sizeof(Item))


cdef Item* sort(Scratch* scratch, int64_t n) noexcept nogil:
    """The items in order, in one of the two arrays.

    Ids of one ranking alone already stand in their order, so a merge of the runs that are
    there has little to do once the ids of several rankings are out of the way.
    """
    cdef Item* items = scratch.spare
    cdef Item* to = scratch.items
    cdef Item* swap
    cdef int64_t* runs = scratch.runs
    cdef int64_t shared = shared_first(scratch.items, scratch.spare, n)
    cdef int64_t i = 0, count = 0, merged
    while i < shared:
        insertion_sort(&items[i], min(<int64_t>RUN, shared - i))
        i += RUN
    runs[0] = 0
    for i in range(1, n):
        if comes_before(&items[i], &items[i - 1]):
            count += 1
            runs[count] = i
    count += 1
    runs[count] = n
    while count > 1:
        merged = 0
        i = 0
        while i < count:
            if i + 1 < count:
                merge(items, to, runs[i], runs[i + 1], runs[i + 2])
            else:
                memcpy(&to[runs[i]], &items[runs[i]], (n - runs[i]) * sizeof(Item))
            runs[merged] = runs[i]
            merged += 1
            i += 2
        runs[merged] = n
        count = merged
        swap = items
        items = to
        to = swap
    return items


cdef int raise_for(int64_t code, Py_ssize_t query) except -1:
    if code == REPEATED:
        raise ValueError(f"a ranking of query {query} holds an id twice")
    raise ValueError(f"a ranking of query {query} holds a negative id or an id after padding")


def fuse_into(
    const int64_t[::1] ids, const int64_t[::1] sizes, const double[::1] weights, double rrf_k,
    int64_t[::1] out_ids, double[::1] out_scores
):
    """Fuse one query; return how many ids were written.

    `ids` holds the rankings one after the other, `sizes` their lengths; the two outputs have
    the length of `ids`. ValueError on a repeat within a ranking or a negative id.
    """
    cdef Scratch scratch
    cdef int64_t n = 0, i, at = 0
    cdef Item* best
    allocate(&scratch, ids.shape[0])
    try:
        with nogil:
            for i in range(sizes.shape[0]):
                if sizes[i] == 0:
                    continue
                fill_parts(scratch.parts, sizes[i], weights[i], rrf_k)
                n = add_ranking(&scratch, n, &ids[at], sizes[i], scratch.parts, <int32_t>i)
                if n < 0:
                    break
                at += sizes[i]
            if n > 0:
                best = sort(&scratch, n)
                for i in range(n):
                    out_ids[i] = best[i].id
                    out_scores[i] = best[i].score
        if n < 0:
            raise_for(n, 0)
        return n
    finally:
        release(&scratch)


def fuse_batch_into(
    const int64_t[:, :, ::1] rankings, const double[::1] weights, double rrf_k,
    int64_t[:, ::1] out_ids, double[:, ::1] out_scores, int64_t[::1] out_counts
):
    """Fuse every query of `rankings` (queries, lists, depth), padded with -1.

    `out_ids` and `out_scores` are (queries, lists * depth) and keep their content behind
    `out_counts[q]`. ValueError on a repeat within a ranking, an id below -1, an id after padding.
    """
    cdef Scratch scratch
    cdef int64_t queries = rankings.shape[0], lists = rankings.shape[1], depth = rankings.shape[2]
    cdef int64_t n = 0, q = 0, i
    cdef Item* best
    if lists == 0 or depth == 0:
        for q in range(queries):
            out_counts[q] = 0
        return
    allocate(&scratch, lists * depth)
    try:
        with nogil:
            for i in range(lists):
                fill_parts(&scratch.parts[i * depth], depth, weights[i], rrf_k)
            for q in range(queries):
                n = 0
                for i in range(lists):
                    n = add_ranking(
                        &scratch, n, &rankings[q, i, 0], depth, &scratch.parts[i * depth],
                        <int32_t>i,
                    )
                    if n < 0:
                        break
                if n < 0:
                    break
                clear(&scratch, n)
                best = sort(&scratch, n)
                for i in range(n):
                    out_ids[q, i] = best[i].id
                    out_scores[q, i] = best[i].score
                out_counts[q] = n
        if n < 0:
            raise_for(n, q)
    finally:
        release(&scratch)
