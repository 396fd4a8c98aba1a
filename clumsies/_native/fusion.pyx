# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reciprocal rank fusion (Cormack, Clarke, Büttcher 2009) for one query and for many.

`score(id) = Σ weight_i / (rrf_k + rank_i(id))` over the rankings that hold the id, ranks from 1,
added in the order of the rankings from 0.0, so the result is the same bit for bit everywhere.
Order: score descending, then best single rank ascending, then id ascending.

A ranking is a row of ids >= 0, best first, no repeats, ended by -1 or by the end of the row.
The caller (`clumsies.engine.fusion`) has checked dtypes and shapes; ids are checked here.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

KERNEL_VERSION = 1

cdef enum:
    BAD_ID = -1
    REPEATED = -2
    RUN = 12                    # length up to which insertion sort is the faster one

cdef struct Item:
    int64_t id
    double score
    int64_t best                # best single rank
    int64_t seen                # the last ranking that held the id


cdef struct Scratch:
    Item* items                 # one an id, in order of first appearance
    Item* spare                 # the other half of the merge sort
    int64_t* slots              # open addressing: index of an item, or -1
    int64_t mask                # number of slots - 1


cdef int allocate(Scratch* scratch, int64_t n) except -1:
    """Room for `n` ids; at most half of the slots are ever taken."""
    cdef int64_t slots = 8
    while slots < 2 * n:
        slots *= 2
    scratch.items = <Item*>malloc((n + 1) * sizeof(Item))
    scratch.spare = <Item*>malloc((n + 1) * sizeof(Item))
    scratch.slots = <int64_t*>malloc(slots * sizeof(int64_t))
    scratch.mask = slots - 1
    if scratch.items == NULL or scratch.spare == NULL or scratch.slots == NULL:
        release(scratch)
        raise MemoryError
    for n in range(slots):
        scratch.slots[n] = -1
    return 0


cdef void release(Scratch* scratch) noexcept:
    free(scratch.items)
    free(scratch.spare)
    free(scratch.slots)


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
    Scratch* scratch, int64_t n, const int64_t* ids, int64_t size, double weight, double rrf_k,
    int64_t number
) noexcept nogil:
    """Add one ranking to `n` items; the new number of items, or BAD_ID or REPEATED."""
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
        part = weight / (rrf_k + <double>rank)
        slot = home(id, scratch.mask)
        while scratch.slots[slot] >= 0 and scratch.items[scratch.slots[slot]].id != id:
            slot = (slot + 1) & scratch.mask
        if scratch.slots[slot] < 0:
            scratch.slots[slot] = n
            item = &scratch.items[n]
            item.id = id
            item.score = 0.0 + part
            item.best = rank
            n += 1
        else:
            item = &scratch.items[scratch.slots[slot]]
            if item.seen == number:
                return REPEATED
            item.score += part
            item.best = min(item.best, rank)
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


cdef Item* sort(Item* items, Item* spare, int64_t n) noexcept nogil:
    """Merge sort; the sorted items are in the returned one of the two arrays."""
    cdef int64_t start, middle, end, i, j, k, width = RUN
    cdef Item item
    cdef Item* swap
    start = 0
    while start < n:
        end = min(start + width, n)
        for i in range(start + 1, end):
            item = items[i]
            j = i - 1
            while j >= start and comes_before(&item, &items[j]):
                items[j + 1] = items[j]
                j -= 1
            items[j + 1] = item
        start = end
    while width < n:
        start = 0
        while start < n:
            middle = min(start + width, n)
            end = min(middle + width, n)
            i = start
            j = middle
            for k in range(start, end):
                if i < middle and (j >= end or comes_before(&items[i], &items[j])):
                    spare[k] = items[i]
                    i += 1
                else:
                    spare[k] = items[j]
                    j += 1
            start = end
        swap = items
        items = spare
        spare = swap
        width *= 2
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
                n = add_ranking(&scratch, n, &ids[at], sizes[i], weights[i], rrf_k, i)
                if n < 0:
                    break
                at += sizes[i]
            if n > 0:
                best = sort(scratch.items, scratch.spare, n)
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
            for q in range(queries):
                n = 0
                for i in range(lists):
                    n = add_ranking(
                        &scratch, n, &rankings[q, i, 0], depth, weights[i], rrf_k, i
                    )
                    if n < 0:
                        break
                if n < 0:
                    break
                clear(&scratch, n)
                best = sort(scratch.items, scratch.spare, n)
                for i in range(n):
                    out_ids[q, i] = best[i].id
                    out_scores[q, i] = best[i].score
                out_counts[q] = n
        if n < 0:
            raise_for(n, q)
    finally:
        release(&scratch)
