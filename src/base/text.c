/* text.c: the growing string, JSON strings, numbers and sizes as text.
 *
 * A tt_text owns its data. Once an addition failed, later ones do nothing, so a caller checks
 * `failed` once, at the end. */
#include "tutti/base/text.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `more` bytes and the terminator. */
static bool grow(tt_text *text, size_t more)
{
    if (text->failed || more >= SIZE_MAX / 4 - text->length) {
        text->failed = true;
        return false;
    }
    size_t need = text->length + more + 1;
    if (need <= text->capacity) {
        return true;
    }
    size_t capacity = text->capacity < 64 ? 64 : text->capacity;
    while (capacity < need) {
        capacity *= 2;
    }
    char *data = realloc(text->data, capacity);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void tt_text_add_bytes(tt_text *text, const char *bytes, size_t length)
{
    if (!grow(text, length)) {
        return;
    }
    if (length > 0) {
        memcpy(text->data + text->length, bytes, length);
    }
    text->length += length;
    text->data[text->length] = '\0';
}

void tt_text_add(tt_text *text, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0) {
        text->failed = true;
    } else if (grow(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, fmt, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void tt_text_add_double(tt_text *text, double value)
{
    if (!isfinite(value)) {
        tt_text_add_bytes(text, "null", 4);
        return;
    }
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) {
        text->failed = true;
        return;
    }
    locale_t before = uselocale(plain);
    char digits[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    uselocale(before);
    freelocale(plain);
    const char *exponent = strchr(digits, 'e');
    if (exponent != NULL && strchr(digits, '.') == NULL) { /* YAML 1.1 wants 1.0e-08 */
        tt_text_add_bytes(text, digits, (size_t)(exponent - digits));
        tt_text_add_bytes(text, ".0", 2);
        tt_text_add_bytes(text, exponent, strlen(exponent));
    } else {
        tt_text_add_bytes(text, digits, strlen(digits));
    }
}

/* Length of the UTF-8 sequence at s (1 to 4), or 0 when it is not valid: too long for its value, a
 * surrogate, beyond U+10FFFF, or cut off. The terminating NUL is never a continuation byte. */
static size_t utf8_length(const unsigned char *s)
{
    unsigned low = 0x80, high = 0xbf; /* allowed range of the second byte */
    size_t length;
    if (s[0] < 0x80) {
        return 1;
    } else if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        length = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        length = 3;
        low = s[0] == 0xe0 ? 0xa0 : low;
        high = s[0] == 0xed ? 0x9f : high;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        length = 4;
        low = s[0] == 0xf0 ? 0x90 : low;
        high = s[0] == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if (s[1] < low || s[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

void tt_text_add_json(tt_text *text, const char *value)
{
    tt_text_add_bytes(text, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)value; *s != '\0';) {
        static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
        const char *escape = strchr(plain, *s);
        size_t length = utf8_length(s);
        if (escape != NULL) {
            tt_text_add(text, "\\%c", letter[escape - plain]);
        } else if (*s < 0x20) {
            tt_text_add(text, "\\u%04x", *s);
        } else if (length == 0) {
            tt_text_add(text, "\\ufffd");
            length = 1;
        } else {
            tt_text_add_bytes(text, (const char *)s, length);
        }
        s += length;
    }
    tt_text_add_bytes(text, "\"", 1);
}

bool tt_text_is_clean(const char *value)
{
    for (const unsigned char *s = (const unsigned char *)value; *s != '\0';) {
        size_t length = utf8_length(s);
        if (length == 0 || *s < 0x20 || *s == 0x7f) {
            return false;
        }
        s += length;
    }
    return true;
}

void tt_text_free(tt_text *text)
{
    free(text->data);
    *text = (tt_text){0};
}

void tt_human_bytes(double bytes, char out[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t u = 0;
    while (fabs(bytes) >= 1023.95 && u + 1 < sizeof unit / sizeof *unit) {
        bytes /= 1024;
        u++;
    }
    snprintf(out, 32, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
}
