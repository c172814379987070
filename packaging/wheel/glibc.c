// SPDX-License-Identifier: BSD-3-Clause
// What Debian 12's libstdc++.a, SQLite and our own objects ask of glibc and glibc 2.28 does not
// have. scripts/wheel links it into everything in the wheel. The linker names whatever is missing
// here; auditwheel names what is too new.
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

// glibc 2.32: whether there is one thread only. Never to say so costs an atomic instruction here
// and there.
char __libc_single_threaded = 0;

// glibc 2.36, for std::random_device.
uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
    if (errno != EINTR) abort();
  }
  return value;
}

// glibc 2.30, for std::condition_variable::wait_for. The older call waits by the realtime clock.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  struct timespec now, realtime;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &realtime);
  realtime.tv_sec += until->tv_sec - now.tv_sec;
  realtime.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (realtime.tv_nsec < 0) {
    realtime.tv_nsec += 1000000000;
    --realtime.tv_sec;
  } else if (realtime.tv_nsec >= 1000000000) {
    realtime.tv_nsec -= 1000000000;
    ++realtime.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &realtime);
}

// glibc 2.29 has second versions of these, which differ in how they report errors; the first ones
// are in every glibc.
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#endif
#define FIRST_VERSION_OF(name, parameters, arguments)   \
  double first_##name parameters;                       \
  __asm__(".symver first_" #name ", " #name "@" FIRST); \
  double name parameters { return first_##name arguments; }
FIRST_VERSION_OF(exp, (double x), (x))
FIRST_VERSION_OF(exp2, (double x), (x))
FIRST_VERSION_OF(log, (double x), (x))
FIRST_VERSION_OF(log2, (double x), (x))
FIRST_VERSION_OF(pow, (double x, double y), (x, y))
