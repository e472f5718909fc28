// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_RING_H
#define FORKTAIL_RING_H

#include <linux/io_uring.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "tap.h"

#define RING_ENTRIES 4

/* An io_uring with one buffer, whose pages are pinned for as long as the ring is there. */
struct ring {
	int descriptor;
	struct io_uring_params params;
	char *queue;
	struct io_uring_sqe *entries;
};

static inline void *ring_map(const struct ring *ring, off_t what, size_t bytes)
{
	void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->descriptor, what);

	if (area == MAP_FAILED)
		tap_bail_out("io_uring: %s", strerror(errno));
	return area;
}

/* Both queues are in one mapping. */
static inline size_t ring_queue_bytes(const struct ring *ring)
{
	size_t taken = ring->params.sq_off.array + ring->params.sq_entries * sizeof(uint32_t);
	size_t ended =
	    ring->params.cq_off.cqes + ring->params.cq_entries * sizeof(struct io_uring_cqe);

	return taken > ended ? taken : ended;
}

static inline struct ring ring_make(void *buffer, size_t bytes)
{
	struct ring ring = {0};
	struct iovec pinned = {buffer, bytes};

	ring.descriptor = (int)syscall(SYS_io_uring_setup, RING_ENTRIES, &ring.params);
	if (ring.descriptor < 0 ||
	    syscall(SYS_io_uring_register, ring.descriptor, IORING_REGISTER_BUFFERS, &pinned, 1))
		tap_bail_out("io_uring: %s", strerror(errno));
	if (!(ring.params.features & IORING_FEAT_SINGLE_MMAP))
		tap_bail_out("io_uring has two mappings");
	ring.queue = ring_map(&ring, IORING_OFF_SQ_RING, ring_queue_bytes(&ring));
	ring.entries = ring_map(&ring, IORING_OFF_SQES, RING_ENTRIES * sizeof(*ring.entries));
	return ring;
}

/* Read a file into part of the buffer; it may take until ring_wait() returns. */
static inline void ring_read(struct ring *ring, int file, void *to, size_t bytes)
{
	uint32_t *tail = (uint32_t *)(ring->queue + ring->params.sq_off.tail);
	uint32_t slot = *tail % RING_ENTRIES;

	ring->entries[slot] = (struct io_uring_sqe){
	    .opcode = IORING_OP_READ_FIXED, .fd = file, .addr = (uintptr_t)to, .len = bytes};
	((uint32_t *)(ring->queue + ring->params.sq_off.array))[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring->descriptor, 1, 0, 0, NULL, 0) != 1)
		tap_bail_out("io_uring takes no read: %s", strerror(errno));
}

/* Until one read has ended; returns how many bytes it was of. */
static inline int ring_wait(struct ring *ring)
{
	uint32_t *head = (uint32_t *)(ring->queue + ring->params.cq_off.head);
	struct io_uring_cqe *ends = (struct io_uring_cqe *)(ring->queue + ring->params.cq_off.cqes);

	if (syscall(SYS_io_uring_enter, ring->descriptor, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) <
	    0)
		tap_bail_out("io_uring: %s", strerror(errno));
	int bytes = ends[*head % ring->params.cq_entries].res;

	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return bytes;
}

static inline void ring_unmake(struct ring *ring)
{
	munmap(ring->entries, RING_ENTRIES * sizeof(*ring->entries));
	munmap(ring->queue, ring_queue_bytes(ring));
	close(ring->descriptor);
}

#endif
