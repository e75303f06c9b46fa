/* fuzz_config.c: any bytes as a configuration: the file's text, and after a NUL byte overrides,
 * each up to the next NUL. What is accepted must be writable, and read back be the same. */
#include "fuzz.h"
#include "tutti/base/options.h"
#include "tutti/base/text.h"

enum { OVERRIDES = 8 };

static void check_round(const tt_config *config)
{
    tt_text text = {0}, again = {0};
    tt_config back;
    tt_err err = {TT_OK, ""};
    tt_config_text(config, false, &text);
    if (text.failed || tt_config_parse(&back, "written", text.data, &err) != TT_OK) {
        fprintf(stderr, "what was accepted cannot be read back: %s\n%s", err.text, text.data);
        abort();
    }
    tt_config_text(&back, false, &again);
    if (again.failed || strcmp(text.data, again.data) != 0) {
        fprintf(stderr, "what was written is read back as something else:\n%s", text.data);
        abort();
    }
    tt_text_free(&text);
    tt_text_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tt_config config;
    tt_err err = {TT_OK, ""};
    char *const copy = malloc(size + 1), *override[OVERRIDES];
    int overrides = 0;
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data, size);
    copy[size] = '\0';
    if (FUZZ_CALL(tt_config_parse(&config, "fuzz", copy, &err))) {
        check_round(&config);
    }
    for (size_t at = strlen(copy) + 1; at <= size && overrides < OVERRIDES;
         at += strlen(copy + at) + 1) {
        override[overrides++] = copy + at;
    }
    if (overrides > 0) { /* on the presets, so that a bad text hides none */
        tt_config_preset(&config);
        if (FUZZ_CALL(tt_config_load(&config, NULL, overrides, override, &err))) {
            check_round(&config);
            FUZZ_CALL(tt_config_require(&config, &err));
        }
    }
    /* The whole as a file, which may hold NUL bytes. */
    const char *path = fuzz_file(data, size);
    FUZZ_CALL(tt_config_load(&config, path, 0, NULL, &err));
    fuzz_forget(path);
    free(copy);
    return 0;
}
