# ShortMethod: a method of a Python class with a compiled short cut.
#
# It takes the place of a function in its class: `send`, `produce` or `poll`. To `inspect` and to callers it is that function, which is the
# general way and does everything. An object of the class holds what the short cut needs under a name of its own (`_short_send`,
# `_short_poll`): a CoroutineSend or RecastCoroutine (send_coroutine.pxi), a RecastSend (recast.pxi), a ReportedSend (reports.pxi) or a
# MessagesInHand (message.pxi), whole compiled objects that know nothing of the class. A call that is written as calls are, on an object that holds one, takes the short
# cut; any other call goes to the function. Where that name is one of the class's `__slots__` its place is known, and looking it up costs
# nothing.
#
# The type is written in C since a Cython class has no vectorcall and no flag for method descriptors: the interpreter would make a bound method
# and a tuple of arguments per record.

cdef extern from *:
    """
    #include <structmember.h>
    enum { KC_SHORT_ARGUMENTS = 8 };
    typedef PyObject *(*kc_short_way)(PyObject *function, PyObject *self, PyObject *held, PyObject **given);
    typedef struct {
        PyObject_HEAD
        PyObject *function;
        PyTypeObject *held_type;
        PyObject *held_name;
        PyTypeObject *owner;                                /* the class that has a slot of that name; NULL: not known */
        Py_ssize_t slot;                                    /* where it is in its objects */
        kc_short_way shortly;                               /* NotImplemented: this call takes the general way */
        int least, by_position, arguments;
        PyObject *names[KC_SHORT_ARGUMENTS];                /* interned */
        PyObject *defaults;                                 /* of the function: a tuple, or NULL */
        PyObject *preset[KC_SHORT_ARGUMENTS];               /* what an argument is that is not given: of `defaults`, or None */
        vectorcallfunc call;
    } kc_short_method;

    static PyObject *kc_short_method_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
        kc_short_method *method = (kc_short_method *)self;
        PyObject *given[KC_SHORT_ARGUMENTS];
        PyObject *held, *found;
        Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
        memcpy(given, method->preset, sizeof(given));
        if (nargs <= method->least
                || !kc_send_places(args + 1, nargs - 1, kwnames, method->by_position, method->arguments, method->names, given))
            return PyObject_Vectorcall(method->function, args, nargsf, kwnames);
        if (method->owner != NULL && PyObject_TypeCheck(args[0], method->owner)) {
            held = *(PyObject **)((char *)args[0] + method->slot);
            Py_XINCREF(held);
        } else {
            held = PyObject_GetAttr(args[0], method->held_name);
            if (held == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
                return NULL;
            PyErr_Clear();
        }
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

    static PyObject *kc_short_method_bound(PyObject *self, PyObject *producer, PyObject *type) {
        (void)type;
        if (producer == NULL || producer == Py_None) {
            Py_INCREF(self);
            return self;
        }
        return PyMethod_New(self, producer);
    }

    /* Called when the class is made. */
    static PyObject *kc_short_method_set_name(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
        kc_short_method *method = (kc_short_method *)self;
        PyObject *found;
        if (nargs == 2 && PyType_Check(args[0]) && method->owner == NULL) {
            found = PyDict_GetItemWithError(((PyTypeObject *)args[0])->tp_dict, method->held_name);
            if (found == NULL && PyErr_Occurred())
                return NULL;
            if (found != NULL && Py_IS_TYPE(found, &PyMemberDescr_Type) && ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX) {
                method->slot = ((PyMemberDescrObject *)found)->d_member->offset;
                Py_INCREF(args[0]);
                method->owner = (PyTypeObject *)args[0];
            }
        }
        Py_RETURN_NONE;
    }

    static PyMethodDef kc_short_method_methods[] = {
        {"__set_name__", (PyCFunction)(void (*)(void))kc_short_method_set_name, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL},
    };

    static PyObject *kc_short_method_attribute(PyObject *self, PyObject *name) {
        PyObject *found = PyObject_GenericGetAttr(self, name);
        if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
            found = PyObject_GetAttr(((kc_short_method *)self)->function, name);
        }
        return found;
    }

    static PyObject *kc_short_method_doc(PyObject *self, void *closure) {
        (void)closure;
        return PyObject_GetAttrString(((kc_short_method *)self)->function, "__doc__");
    }

    static PyObject *kc_short_method_repr(PyObject *self) {
        return PyObject_Repr(((kc_short_method *)self)->function);
    }

    static int kc_short_method_traverse(PyObject *self, visitproc visit, void *arg) {
        Py_VISIT(((kc_short_method *)self)->function);
        Py_VISIT(((kc_short_method *)self)->defaults);
        Py_VISIT(((kc_short_method *)self)->owner);
        return 0;
    }

    static int kc_short_method_clear(PyObject *self) {      /* the preset arguments go with the defaults: from now on there are none */
        kc_short_method *method = (kc_short_method *)self;
        int at;
        for (at = 0; at < KC_SHORT_ARGUMENTS; at++)
            method->preset[at] = Py_None;
        Py_CLEAR(method->defaults);
        Py_CLEAR(method->owner);
        Py_CLEAR(method->function);
        return 0;
    }

    static void kc_short_method_dealloc(PyObject *self) {
        kc_short_method *method = (kc_short_method *)self;
        int at;
        PyObject_GC_UnTrack(self);
        kc_short_method_clear(self);
        Py_CLEAR(method->held_name);
        for (at = 0; at < KC_SHORT_ARGUMENTS; at++)
            Py_CLEAR(method->names[at]);
        PyObject_GC_Del(self);
    }

    static PyGetSetDef kc_short_method_getset[] = {{"__doc__", kc_short_method_doc, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

    static PyTypeObject kc_short_method_type = {
        PyVarObject_HEAD_INIT(NULL, 0)
        .tp_name = "kafkacore._codec.ShortMethod",
        .tp_basicsize = sizeof(kc_short_method),
        .tp_dealloc = kc_short_method_dealloc,
        .tp_repr = kc_short_method_repr,
        .tp_call = PyVectorcall_Call,
        .tp_vectorcall_offset = offsetof(kc_short_method, call),
        .tp_getattro = kc_short_method_attribute,
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_VECTORCALL,
        .tp_traverse = kc_short_method_traverse,
        .tp_clear = kc_short_method_clear,
        .tp_methods = kc_short_method_methods,
        .tp_getset = kc_short_method_getset,
        .tp_descr_get = kc_short_method_bound,
    };

    static PyObject *kc_short_method_new(PyObject *function, PyObject *held_type, PyObject *held_name, kc_short_way shortly, int least,
                                         int by_position, PyObject *names, PyObject *defaults) {
        kc_short_method *self;
        Py_ssize_t at, count = PyTuple_GET_SIZE(names), without;
        if (count > KC_SHORT_ARGUMENTS) {
            PyErr_SetString(PyExc_SystemError, "a function has more arguments than a short cut takes");
            return NULL;
        }
        self = PyObject_GC_New(kc_short_method, &kc_short_method_type);
        if (self == NULL)
            return NULL;
        Py_INCREF(function);
        self->function = function;
        self->held_type = (PyTypeObject *)held_type;        /* of this extension: it stays */
        Py_INCREF(held_name);
        self->held_name = held_name;
        PyUnicode_InternInPlace(&self->held_name);
        self->owner = NULL;
        self->slot = 0;
        self->shortly = shortly;
        self->least = least;
        self->by_position = by_position;
        self->arguments = (int)count;
        self->defaults = NULL;
        if (PyTuple_Check(defaults)) {
            Py_INCREF(defaults);
            self->defaults = defaults;
        }
        without = by_position - (self->defaults == NULL ? 0 : PyTuple_GET_SIZE(defaults));
        for (at = 0; at < KC_SHORT_ARGUMENTS; at++) {
            self->names[at] = NULL;
            self->preset[at] = Py_None;
            if (at < count) {
                self->names[at] = PyTuple_GET_ITEM(names, at);
                Py_INCREF(self->names[at]);
                PyUnicode_InternInPlace(&self->names[at]);
            }
            if (at >= without && at < by_position)
                self->preset[at] = PyTuple_GET_ITEM(defaults, at - without);
        }
        self->call = kc_short_method_call;
        PyObject_GC_Track((PyObject *)self);
        return (PyObject *)self;
    }

    static int kc_install_short_method(void) {
        return PyType_Ready(&kc_short_method_type);
    }
    """
    ctypedef void* kc_short_way
    object kc_short_method_new(object function, object held_type, object held_name, kc_short_way shortly, int least, int by_position,
                               tuple names, object defaults)
    int kc_install_short_method() except -1


cdef object short_method(function, type held, str held_name, kc_short_way shortly, tuple names):
    """The function of a class with a short cut; `names` are the arguments that the short cut knows by their places."""
    code = function.__code__
    cdef int named = code.co_argcount + code.co_kwonlyargcount - 1
    defaults = function.__defaults__
    cdef int least = <int> (code.co_argcount - 1 - (len(defaults) if defaults else 0))
    found = code.co_varnames[1:named + 1]
    if found != names[:named]:
        raise TypeError(f"{function.__qualname__} has the arguments {found}, its short cut knows {names}")
    return kc_short_method_new(function, held, held_name, shortly, least, code.co_argcount - 1, found, defaults)


def send_method(function, type held not None):
    """The function `send` of a class, with the short cut of what its objects hold as `_short_send`.

    Args:
        function: the general way; its arguments are those of ProducerCore.send, in that order, or confluent-kafka's for a ReportedSend and
            aiokafka's for a RecastCoroutine.
        held: CoroutineSend or RecastCoroutine, for a coroutine function, RecastSend or ReportedSend.
    """
    if held is CoroutineSend:
        return short_method(function, held, "_short_send", <kc_short_way> sending_new, SEND_NAMES)
    if held is RecastCoroutine:
        return short_method(function, held, "_short_send", <kc_short_way> recast_coroutine, AIOKAFKA_NAMES)
    if held is RecastSend:
        return short_method(function, held, "_short_send", <kc_short_way> recast_send, SEND_NAMES)
    if held is ReportedSend:
        return short_method(function, held, "_short_send", <kc_short_way> reported_send, PRODUCE_NAMES)
    raise TypeError(f"{held.__name__} has no short cut for send")


def poll_method(function):
    """The function `poll` of a class, with the short cut of what its objects hold as `_short_poll`: a MessagesInHand.

    Args:
        function: the general way; its argument is `timeout`.
    """
    return short_method(function, MessagesInHand, "_short_poll", <kc_short_way> handed_out, ("timeout",))


def read_method(function):
    """The coroutine function that reads one message, with the short cut of what the objects of its class hold as `_short_read`: a
    MessagesInHand.

    Args:
        function: the general way, called without arguments; a call that has any takes that way.
    """
    return short_method(function, MessagesInHand, "_short_read", <kc_short_way> read_coroutine, ())


kc_install_short_method()
