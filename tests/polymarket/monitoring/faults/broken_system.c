/* Preloaded into a server to make faults of its system that nothing else can make. Each begins when
   a file with its name appears in the folder that the variable FAULTS names. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int has_begun(const char *fault) {
  char path[4096];
  const char *folder = getenv("FAULTS");
  if (folder == NULL) return 0;
  snprintf(path, sizeof path, "%s/%s", folder, fault);
  return access(path, F_OK) == 0;
}

/* The wall clock is an hour ahead; the monotonic clock knows nothing of it. */
int clock_gettime(clockid_t clock, struct timespec *time) {
  long result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME && has_begun("clock-jump")) time->tv_sec += 3600;
  return (int)result;
}

/* The system gives no random bytes. */
ssize_t getrandom(void *buffer, size_t length, unsigned flags) {
  if (has_begun("no-random-bytes")) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_getrandom, buffer, length, flags);
}
