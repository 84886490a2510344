/* Timer objects that the garbage collector sees but does not count.
 *
 * Its young collections start after so many allocations of objects that it tracks, less those freed. A program with 100,000 timers so has
 * them walked again and again, though a timer alone is never a cycle: it has one reference, to its callable, and whatever closes the
 * cycle (a bound method, a closure, an instance) is counted itself. So these objects are tracked as any other, and every cycle through
 * them is found, but making and freeing them does not bring a collection nearer or farther.
 *
 * The memory is PyObject_Malloc's with the collector's two words in front, zero until the object is tracked: CPython's layout, 3.8 to 3.14.
 * Where it is another (free threading, another interpreter), kw_uncounted changes nothing.
 */
#ifndef KAFKACORE_WHEEL_ALLOC_H
#define KAFKACORE_WHEEL_ALLOC_H

#include <Python.h>

#define KW_HEAD ((Py_ssize_t)(2 * sizeof(uintptr_t)))

static PyObject *kw_object_alloc(PyTypeObject *type, Py_ssize_t items) {
    char *block = (char *)PyObject_Calloc(1, (size_t)(KW_HEAD + type->tp_basicsize));
    PyObject *object = (PyObject *)(block + KW_HEAD);
    (void)items;
    if (block == NULL) return PyErr_NoMemory();
    PyObject_Init(object, type);
    PyObject_GC_Track(object);
    return object;
}

static void kw_object_free(void *object) { PyObject_Free((char *)object - KW_HEAD); }

/* Has a class make its own objects so; subclasses keep the interpreter's allocation. `head`: bytes in front of an object of it, measured.
 * Called before the first object is freed. Whether it did. */
static int kw_uncounted(PyTypeObject *type, Py_ssize_t head) {
#if defined(Py_GIL_DISABLED) || defined(PYPY_VERSION)
    (void)type, (void)head;
    return 0;
#else
    if (head != KW_HEAD || (type->tp_flags & Py_TPFLAGS_HEAPTYPE) || type->tp_itemsize) return 0;
    type->tp_alloc = kw_object_alloc;
    type->tp_free = kw_object_free;
    return 1;
#endif
}

#endif
