/* Memory that lies in a list of ours, or behind what was asked for, is marked for ASAN: who touches it is reported. Without ASAN nothing happens. */
#ifndef KAFKACORE_POISON_H
#define KAFKACORE_POISON_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KC_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define KC_ASAN 1
#endif

#ifdef KC_ASAN
#include <sanitizer/asan_interface.h>
#else
#define KC_ASAN 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#endif
