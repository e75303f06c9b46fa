/* digest.h: digests that do not depend on how a tensor is split.
 *
 * digest(tensor) = sum over elements i of mix(i, bits of element i) mod 2^64, where for each i mix
 * is a bijection of the bits. So pieces may be digested anywhere, in any order, and added; a change
 * of one element always changes the sum; other changes are missed with probability 2^-64. This is a
 * check against accident, not against malice. */
#ifndef TUTTI_NUMERICS_DIGEST_H
#define TUTTI_NUMERICS_DIGEST_H

#include <stdint.h>

/* Contribution of the elements first .. first+count-1 of a tensor of 4-byte elements. Add
 * contributions with unsigned wrap-around. */
uint64_t tt_digest32(const void *data, int64_t first, int64_t count);

/* Digest of a list of tensors from the digests of each, in the list's order. */
uint64_t tt_digest_group(const uint64_t *digest, int count);

/* Digest of a byte string (options, tokenizer), length included. */
uint64_t tt_digest_bytes(const void *data, int64_t count);

#endif
