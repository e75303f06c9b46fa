/* digest.c: position-keyed digests.
 *
 * Element i with bits b contributes mix(i * G + b), G odd, mix the finaliser of SplitMix64 (Steele,
 * Lea, Flood 2014), a bijection of 64-bit words: for a fixed i different b give different
 * contributions, which is what the header promises. Two multiplications an element, independent from
 * element to element, so they pipeline. */
#include "tutti/numerics/digest.h"

#include <assert.h>
#include <string.h>

static const uint64_t golden = 0x9E3779B97F4A7C15u;

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Twice as fast where 256-bit integers are; the same integers everywhere. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default")))
#endif
uint64_t
tt_digest32(const void *data, int64_t first, int64_t count)
{
    assert(first >= 0 && count >= 0);
    const unsigned char *bytes = data;
    uint64_t sum = 0, key = ((uint64_t)first + 1) * golden;
    for (int64_t i = 0; i < count; i++, key += golden) {
        uint32_t bits;
        memcpy(&bits, bytes + 4 * i, sizeof bits);
        sum += mix(key + bits);
    }
    return sum;
}

uint64_t tt_digest_bytes(const void *data, int64_t count)
{
    int64_t words = count / 4;
    uint32_t tail = 0;
    if (count % 4 != 0) {
        memcpy(&tail, (const unsigned char *)data + 4 * words, (size_t)(count % 4));
    }
    return tt_digest32(data, 0, words) + tt_digest32(&tail, words, 1) + mix((uint64_t)count);
}

uint64_t tt_digest_group(const uint64_t *digest, int count)
{
    return tt_digest_bytes(digest, (int64_t)sizeof *digest * count);
}
