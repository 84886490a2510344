/* Arrow's C data interface, the giving side: structs that own what they point into.
 *
 * Each array holds its own reference to one Python object, which keeps the memory of its buffers alive. So a consumer may move a child out of
 * its parent and release both in any order, on any thread, with the GIL or without. Names and formats are literals: schemas own their
 * structs alone.
 *
 * What is released while the interpreter ends, by a thread that does not have the GIL, is left to the system: taking the GIL would end
 * or stop that thread within somebody else's destructor.
 *
 * Source: Apache Arrow, "The Arrow C data interface" and "The Arrow C stream interface".
 */
#ifndef KAFKACORE_ARROW_OUT_H
#define KAFKACORE_ARROW_OUT_H
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"

enum { KC_ARROW_NULLABLE = 2 };

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

/* What an empty buffer points at: readers may take NULL for a fault. */
static const uint64_t kc_arrow_nothing[8];

static void kc_arrow_drop(void *owner) {
#if PY_VERSION_HEX >= 0x030D0000
    int ending = Py_IsFinalizing();
#else
    int ending = _Py_IsFinalizing();
#endif
    if (!owner || !Py_IsInitialized() || (ending && !PyGILState_Check())) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

static void kc_arrow_release_array(struct ArrowArray *a) {
    for (int64_t i = 0; i < a->n_children; i++) {
        if (a->children[i] && a->children[i]->release) a->children[i]->release(a->children[i]);
        free(a->children[i]);
    }
    if (a->dictionary && a->dictionary->release) a->dictionary->release(a->dictionary);
    free(a->dictionary);
    free(a->children);
    free((void *)a->buffers);
    a->release = NULL;
    kc_arrow_drop(a->private_data);
}

static void kc_arrow_release_schema(struct ArrowSchema *s) {
    for (int64_t i = 0; i < s->n_children; i++) {
        if (s->children[i] && s->children[i]->release) s->children[i]->release(s->children[i]);
        free(s->children[i]);
    }
    if (s->dictionary && s->dictionary->release) s->dictionary->release(s->dictionary);
    free(s->dictionary);
    free(s->children);
    s->release = NULL;
}

/* An array with room for buffers and children, all of them nothing yet. Takes a reference to `owner`, which may be NULL. Returns 0 when there
 * is no memory; the array can be released then, too. */
static int kc_arrow_array(struct ArrowArray *a, int64_t length, int64_t nulls, int64_t n_buffers, int64_t n_children, PyObject *owner) {
    memset(a, 0, sizeof *a);
    a->length = length;
    a->null_count = nulls;
    a->release = kc_arrow_release_array;
    a->private_data = owner;
    Py_XINCREF(owner);
    a->buffers = calloc((size_t)n_buffers, sizeof *a->buffers);
    a->children = n_children ? calloc((size_t)n_children, sizeof *a->children) : NULL;
    if (!a->buffers || (n_children && !a->children)) return 0;
    a->n_buffers = n_buffers;
    a->n_children = n_children;
    for (int64_t i = 0; i < n_children; i++)
        if (!(a->children[i] = calloc(1, sizeof **a->children))) return 0;
    return 1;
}

static int kc_arrow_schema(struct ArrowSchema *s, const char *format, const char *name, int nullable, int64_t n_children) {
    memset(s, 0, sizeof *s);
    s->format = format;
    s->name = name;
    s->flags = nullable ? KC_ARROW_NULLABLE : 0;
    s->release = kc_arrow_release_schema;
    s->children = n_children ? calloc((size_t)n_children, sizeof *s->children) : NULL;
    if (n_children && !s->children) return 0;
    s->n_children = n_children;
    for (int64_t i = 0; i < n_children; i++)
        if (!(s->children[i] = calloc(1, sizeof **s->children))) return 0;
    return 1;
}

static int kc_arrow_dictionary(struct ArrowSchema *s, struct ArrowArray *a) {
    if (s) return (s->dictionary = calloc(1, sizeof *s)) != NULL;
    return (a->dictionary = calloc(1, sizeof *a)) != NULL;
}
#endif
