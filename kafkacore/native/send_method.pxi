# SendMethod: a method `send` of a Python class, with a compiled short cut.
#
# It takes the place of the function `send` in its class. To `inspect` and to callers it is that function, which is the general way and does
# everything. An object of the class holds what the short cut needs under `_short_send`: a CoroutineSend (send_coroutine.pxi) or a RecastSend
# (recast.pxi), whole compiled objects that know nothing of the class. A call that is written as calls are, on an object that holds one, takes
# the short cut; any other call goes to the function.
#
# The type is written in C since a Cython class has no vectorcall and no flag for method descriptors: the interpreter would make a bound method
# and a tuple of arguments per record.

cdef extern from *:
    """
    typedef PyObject *(*kc_short_send)(PyObject *function, PyObject *producer, PyObject *held, PyObject **given);
    typedef struct {
        PyObject_HEAD
        PyObject *function;
        PyTypeObject *held_type;
        kc_short_send shortly;                              /* NotImplemented: this call takes the general way */
        int by_position;
        int arguments;
        vectorcallfunc call;
    } kc_send_method;
    static PyObject *kc_short_send_name;

    static PyObject *kc_send_method_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
        kc_send_method *method = (kc_send_method *)self;
        PyObject *given[KC_SEND_ARGUMENTS] = {NULL, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None};
        PyObject *held, *found;
        Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
        if (nargs < 2 || !kc_send_places(args + 1, nargs - 1, kwnames, method->by_position, method->arguments, given))
            return PyObject_Vectorcall(method->function, args, nargsf, kwnames);
        held = PyObject_GetAttr(args[0], kc_short_send_name);
        if (held == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
            return NULL;
        PyErr_Clear();
        if (held != NULL && Py_TYPE(held) == method->held_type) {
            found = method->shortly(method->function, args[0], held, given);
            Py_DECREF(held);
            if (found != Py_NotImplemented)
                return found;
            Py_DECREF(found);
        } else
            Py_XDECREF(held);
        return PyObject_Vectorcall(method->function, args, nargsf, kwnames);
    }

    static PyObject *kc_send_method_bound(PyObject *self, PyObject *producer, PyObject *type) {
        (void)type;
        if (producer == NULL || producer == Py_None) {
            Py_INCREF(self);
            return self;
        }
        return PyMethod_New(self, producer);
    }

    static PyObject *kc_send_method_attribute(PyObject *self, PyObject *name) {
        PyObject *found = PyObject_GenericGetAttr(self, name);
        if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
            found = PyObject_GetAttr(((kc_send_method *)self)->function, name);
        }
        return found;
    }

    static PyObject *kc_send_method_doc(PyObject *self, void *closure) {
        (void)closure;
        return PyObject_GetAttrString(((kc_send_method *)self)->function, "__doc__");
    }

    static PyObject *kc_send_method_repr(PyObject *self) {
        return PyObject_Repr(((kc_send_method *)self)->function);
    }

    static int kc_send_method_traverse(PyObject *self, visitproc visit, void *arg) {
        Py_VISIT(((kc_send_method *)self)->function);
        return 0;
    }

    static int kc_send_method_clear(PyObject *self) {
        Py_CLEAR(((kc_send_method *)self)->function);
        return 0;
    }

    static void kc_send_method_dealloc(PyObject *self) {
        PyObject_GC_UnTrack(self);
        Py_CLEAR(((kc_send_method *)self)->function);
        PyObject_GC_Del(self);
    }

    static PyGetSetDef kc_send_method_getset[] = {{"__doc__", kc_send_method_doc, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

    static PyTypeObject kc_send_method_type = {
        PyVarObject_HEAD_INIT(NULL, 0)
        .tp_name = "kafkacore._codec.SendMethod",
        .tp_basicsize = sizeof(kc_send_method),
        .tp_dealloc = kc_send_method_dealloc,
        .tp_repr = kc_send_method_repr,
        .tp_call = PyVectorcall_Call,
        .tp_vectorcall_offset = offsetof(kc_send_method, call),
        .tp_getattro = kc_send_method_attribute,
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_VECTORCALL,
        .tp_traverse = kc_send_method_traverse,
        .tp_clear = kc_send_method_clear,
        .tp_getset = kc_send_method_getset,
        .tp_descr_get = kc_send_method_bound,
    };

    static PyObject *kc_send_method_new(PyObject *function, PyObject *held_type, kc_short_send shortly, int by_position, int arguments) {
        kc_send_method *self = PyObject_GC_New(kc_send_method, &kc_send_method_type);
        if (self == NULL)
            return NULL;
        Py_INCREF(function);
        self->function = function;
        self->held_type = (PyTypeObject *)held_type;        /* of this extension: it stays */
        self->shortly = shortly;
        self->by_position = by_position;
        self->arguments = arguments;
        self->call = kc_send_method_call;
        PyObject_GC_Track((PyObject *)self);
        return (PyObject *)self;
    }

    static int kc_install_send_method(void) {
        kc_short_send_name = PyUnicode_InternFromString("_short_send");
        return kc_short_send_name == NULL ? -1 : PyType_Ready(&kc_send_method_type);
    }
    """
    ctypedef void* kc_short_send
    object kc_send_method_new(object function, object held_type, kc_short_send shortly, int by_position, int arguments)
    int kc_install_send_method() except -1


def send_method(function, type held not None):
    """The function `send` of a class, with the short cut of what its objects hold as `_short_send`.

    Args:
        function: the general way; its arguments are those of ProducerCore.send, in that order.
        held: CoroutineSend, for a coroutine function, or RecastSend.
    """
    cdef int named = function.__code__.co_argcount + function.__code__.co_kwonlyargcount - 1
    cdef int by_position = function.__code__.co_argcount - 1
    if function.__code__.co_varnames[1:named + 1] != SEND_NAMES[:named]:
        raise TypeError(f"{function.__qualname__} has other arguments than ProducerCore.send")
    if held is CoroutineSend:
        return kc_send_method_new(function, held, <kc_short_send> sending_new, by_position, named)
    if held is RecastSend:
        return kc_send_method_new(function, held, <kc_short_send> recast_send, by_position, named)
    raise TypeError(f"{held.__name__} has no short cut for send")


kc_install_send_method()
