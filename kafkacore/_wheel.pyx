"""Time: the compiled half of timer and purgatory.

One extension, split into rooms by include. Python reaches these names through kafkacore.timer and kafkacore.purgatory; other extensions
may cimport the classes of _wheel.pxd.
"""

cimport cython

include "native/wheel.pxi"
include "native/wheel_tasks.pxi"
include "native/wheel_views.pxi"
include "native/wheel_purgatory.pxi"
include "native/wheel_aio.pxi"
