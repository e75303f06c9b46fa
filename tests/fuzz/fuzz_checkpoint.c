/* fuzz_checkpoint.c: any bytes as a checkpoint: everything that reads one. */
#include "fuzz_h5.h"
#include "fuzz_state.h"

static void load(const char *path, int tensors, bool params_only)
{
    static fuzz_state now, before;
    tt_err err;
    fuzz_state_make(&now, tensors);
    before = now;
    const bool loaded = FUZZ_CALL(tt_ckpt_load(NULL, path, &now.state, params_only, &err));
    if (!loaded && memcmp(now.value, before.value, sizeof now.value) != 0) {
        fprintf(stderr, "a refused file has changed something: %s\n", err.text);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tt_text text = {0}, tokenizer = {0};
    tt_err err;
    tt_group_diff group[4];
    tt_first_diff first;
    bool identical = false;
    int groups = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++) {
        sum += data[i];
    }
    const char *path = fuzz_file(data, size);
    FUZZ_CALL(tt_ckpt_verify(path, &text, &err));
    text.length = 0;
    /* The rest in turn, by the bytes: all of it would open the file ten times. */
    switch (sum % 4) {
    case 0:
        FUZZ_CALL(tt_ckpt_info(path, &text, &err));
        text.length = 0;
        FUZZ_CALL(tt_ckpt_texts(path, &text, &tokenizer, &err));
        text.length = 0;
        FUZZ_CALL(tt_ckpt_arithmetic(path, &text, &err));
        FUZZ_CALL(tt_ckpt_may_replace(path, "grads", &err));
        break;
    case 1:
        load(path, FUZZ_FEW, sum % 8 < 4);
        break;
    case 2:
        load(path, FUZZ_MOST, sum % 8 < 4);
        break;
    default:
        FUZZ_CALL(tt_ckpt_diff(path, path, &identical, group, 4, &groups, &first, &err));
    }
    tt_text_free(&text);
    tt_text_free(&tokenizer);
    fuzz_closed();
    fuzz_forget(path);
    return 0;
}
