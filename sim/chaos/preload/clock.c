// A clock that another process moves. A server that has this library preloaded reads, instead of
// the system's clocks, what the file says whose name is in REDQUORUM_CLOCK:
//
//	shown = true + ahead                            the time of day
//	shown = since + (true - since) * (1 + rate)     all clocks, rate in billionths
//
// A writer makes version odd, changes the rest, and makes it even again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct shown {
	volatile uint64_t version;
	volatile int64_t ahead;   // ns
	volatile int64_t rate;    // billionths
	volatile int64_t since;   // ns of CLOCK_MONOTONIC, from which the rate counts
	volatile int64_t gained;  // ns, what earlier rates have added
};

static struct shown *shown;

__attribute__((constructor)) static void start(void) {
	const char *path = getenv("REDQUORUM_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *at = mmap(0, sizeof *shown, PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		shown = at;
	close(fd);
}

static int real(clockid_t id, struct timespec *t) {
	static int (*vdso)(clockid_t, struct timespec *);
	if (!vdso)
		vdso = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	return vdso ? vdso(id, t) : (int)syscall(SYS_clock_gettime, id, t);
}

static int64_t ns(const struct timespec *t) { return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec; }

static void move(struct timespec *t, int day) {
	struct timespec mono;
	if (!shown || real(CLOCK_MONOTONIC, &mono))
		return;
	uint64_t before;
	int64_t more;
	do {
		before = __atomic_load_n(&shown->version, __ATOMIC_ACQUIRE);
		more = shown->gained + (int64_t)((__int128)(ns(&mono) - shown->since) * shown->rate / 1000000000);
		if (day)
			more += shown->ahead;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (before & 1 || before != shown->version);
	int64_t at = ns(t) + more;
	t->tv_sec = at / 1000000000;
	t->tv_nsec = at % 1000000000;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = real(id, t);
	if (failed)
		return failed;
	switch (id) {
	case CLOCK_REALTIME:
	case CLOCK_REALTIME_COARSE:
		move(t, 1);
		break;
	case CLOCK_MONOTONIC:
	case CLOCK_MONOTONIC_COARSE:
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_BOOTTIME:
		move(t, 0);
	}
	return 0;
}

int gettimeofday(struct timeval *t, void *zone) {
	struct timespec day;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &day))
		return -1;
	t->tv_sec = day.tv_sec;
	t->tv_usec = day.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec day;
	clock_gettime(CLOCK_REALTIME, &day);
	if (t)
		*t = day.tv_sec;
	return day.tv_sec;
}
