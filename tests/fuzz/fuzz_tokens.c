/* fuzz_tokens.c: any bytes as a token file: opened, read in windows, inspected. */
#include "fuzz_h5.h"
#include "tutti/data/tokens.h"

enum { WINDOW = 300 };

static void read_part(const char *path, bool valid)
{
    tt_tokens *tokens = NULL;
    tt_err err;
    int32_t id[WINDOW];
    if (!FUZZ_CALL(tt_tokens_open(&tokens, path, valid, &err))) {
        return;
    }
    const int64_t count = tt_tokens_count(tokens), length = count < WINDOW ? count : WINDOW;
    for (int64_t first = 0; first <= count - length; first += (count - length) / 3 + 1) {
        const bool read = FUZZ_CALL(tt_tokens_read(tokens, first, length, id, &err));
        for (int64_t i = 0; i < length && read; i++) {
            if (id[i] < 0 || id[i] >= tt_tokens_vocab(tokens)) {
                abort();
            }
        }
    }
    int64_t before = 0, first, end;
    for (int64_t d = 0; d < tt_tokens_documents(tokens); d++) {
        tt_tokens_document(tokens, d, &first, &end);
        if (first != before || end < first || end > count) {
            abort();
        }
        before = end;
    }
    tt_tokens_close(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tt_tokens_summary summary;
    tt_err err;
    const char *path = fuzz_file(data, size);
    read_part(path, false);
    read_part(path, true);
    FUZZ_CALL(tt_tokens_inspect(path, &summary, &err));
    fuzz_closed();
    fuzz_forget(path);
    return 0;
}
