/* Small parts of text and arrays that the parsers of the state file and of the limits file share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

bool parse_unsigned(const char *text, uint64_t maximum, uint64_t *value)
{
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    *value = number;
    return errno == 0 && *end == '\0' && number <= maximum;
}

bool percent_decode(const char *text, char *out, size_t size)
{
    size_t length = 0;
    for (; *text; text++, length++) {
        if (length + 1 >= size)
            return false;
        if (*text == '%') {
            char digits[3] = {text[1], text[1] ? text[2] : '\0', '\0'};
            char *end;
            out[length] = (char)strtoul(digits, &end, 16);
            if (end != digits + 2)
                return false;
            text += 2;
        } else {
            out[length] = *text;
        }
    }
    out[length] = '\0';
    return true;
}

/* Without memory a simulation cannot go on, and half a node would be a wrong answer. */
static void *checked(void *memory)
{
    if (memory == NULL) {
        fputs("simulated NVML: out of memory\n", stderr);
        abort();
    }
    return memory;
}

void *zeroed(size_t size)
{
    return checked(calloc(1, size));
}

void *grown(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 8;
    return checked(realloc(array, *capacity * size));
}
