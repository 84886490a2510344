# The way from a Python call into ProducerCore.send.
#
# Argument parsing as Cython writes it takes a reference to every argument and default and gives it back: a dozen dependent additions and
# subtractions in the count of None, a tenth of what send() costs. This entry borrows what the caller holds anyway. It takes the topic by
# position and keywords in their interned form, which is how calls are written; any other call goes to the method as Cython compiled it, which
# also words the errors. It becomes the attribute `send` when the module is made, as a plain method descriptor, which the interpreter calls
# without a frame or a bound method in between.

cdef extern from *:
    """
    enum { KC_SEND_BY_POSITION = 3, KC_SEND_ARGUMENTS = 7 };
    typedef PyObject *(*kc_send_function)(PyObject *, PyObject *, PyObject *, PyObject *, PyObject *, PyObject *, PyObject *, PyObject *);
    static kc_send_function kc_send_parsed;
    static PyObject *(*kc_send_refused)(PyObject *);        /* goes on raising what is raised */
    static PyObject *kc_send_compiled;                      /* the method as Cython compiled it */
    static PyObject *kc_send_names[KC_SEND_ARGUMENTS];

    /* Puts arguments into their places, borrowed; 0 for a call that is written in another way than calls are. */
    static inline int kc_send_places(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, int by_position, int arguments,
                                     PyObject *const *names, PyObject **given) {
        Py_ssize_t i, at, named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
        if (nargs > by_position)
            return 0;
        for (i = 0; i < nargs; i++)
            given[i] = args[i];
        for (i = 0; i < named; i++) {
            at = arguments - 1;
            while (at >= nargs && names[at] != PyTuple_GET_ITEM(kwnames, i))
                at--;
            if (at < nargs)
                return 0;
            given[at] = args[nargs + i];
        }
        return 1;
    }

    static PyObject *kc_send(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
        PyObject *given[KC_SEND_ARGUMENTS] = {NULL, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None};
        PyObject *method, *future;
        if (nargs >= 1 && kc_send_places(args, nargs, kwnames, KC_SEND_BY_POSITION, KC_SEND_ARGUMENTS, kc_send_names, given))
            return (future = kc_send_parsed(self, given[0], given[1], given[2], given[3], given[4], given[5], given[6])) != NULL
                       ? future : kc_send_refused(self);
        method = PyMethod_New(kc_send_compiled, self);
        if (method == NULL)
            return NULL;
        future = PyObject_Vectorcall(method, args, (size_t)nargs, kwnames);
        Py_DECREF(method);
        return future;
    }

    static PyMethodDef kc_send_def = {"send", (PyCFunction)(void (*)(void))kc_send, METH_FASTCALL | METH_KEYWORDS, NULL};

    static PyObject *kc_raised(void) {                         /* what is raised already */
        return NULL;
    }

    static int kc_install_send(PyObject *type, PyObject *compiled, PyObject *names, const char *doc, kc_send_function parsed,
                               PyObject *(*refused)(PyObject *)) {
        PyObject *descriptor;
        Py_ssize_t i;
        int failed;
        if (PyTuple_GET_SIZE(names) != KC_SEND_ARGUMENTS) {
            PyErr_SetString(PyExc_SystemError, "send() has other arguments than its entry knows");
            return -1;
        }
        kc_send_parsed = parsed;
        kc_send_refused = refused;
        Py_INCREF(compiled);
        kc_send_compiled = compiled;
        for (i = 0; i < KC_SEND_ARGUMENTS; i++) {
            kc_send_names[i] = PyTuple_GET_ITEM(names, i);
            Py_INCREF(kc_send_names[i]);
            PyUnicode_InternInPlace(&kc_send_names[i]);
        }
        kc_send_def.ml_doc = doc;
        descriptor = PyDescr_NewMethod((PyTypeObject *)type, &kc_send_def);
        if (descriptor == NULL)
            return -1;
        failed = PyDict_SetItemString(((PyTypeObject *)type)->tp_dict, "send", descriptor);
        Py_DECREF(descriptor);
        PyType_Modified((PyTypeObject *)type);
        return failed;
    }
    """
    ctypedef void* kc_send_function
    ctypedef object (*kc_refused_function)(object)
    object kc_raised()
    int kc_install_send(object type, object compiled, tuple names, const char *doc, kc_send_function parsed, kc_refused_function refused) except -1


cdef object send_parsed(object producer, topic, value, key, headers, partition, timestamp_ms, on_delivery):
    return (<ProducerCore> producer).send_parsed(topic, value, key, headers, partition, timestamp_ms, on_delivery)


cdef object send_refused(object producer):
    try:
        kc_raised()
    except Exception as error:
        (<ProducerCore> producer).refuse(error)
        raise


cdef bytes _send_doc = b""                    # the descriptor points into it
cdef tuple SEND_NAMES = ()                    # of the arguments


cdef install_send():
    global _send_doc, SEND_NAMES
    compiled = ProducerCore.__dict__["send"]
    code = compiled.__code__
    head, text = compiled.__doc__.split("\n", 1)
    _send_doc = ("send($self" + head.partition("(self")[2].replace(", **unknown", "") + "\n--\n\n" + text.lstrip()).encode()
    SEND_NAMES = code.co_varnames[1:code.co_argcount + code.co_kwonlyargcount]
    kc_install_send(ProducerCore, compiled, SEND_NAMES, PyBytes_AS_STRING(_send_doc), <kc_send_function> send_parsed, send_refused)


install_send()
