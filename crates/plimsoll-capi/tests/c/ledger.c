// Uses the ledger as C code does: buffers are freed, and their bytes returned, on threads of C's own.

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "plimsoll.h"

#define MIB (UINT64_C(1) << 20)

static char error_text[1024];

static const char *last_error(void) {
  plimsoll_last_error(error_text, sizeof error_text);
  return error_text;
}

// Ends the program with a line that says what went wrong: the Rust test prints it.
#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition, last_error()); \
      exit(1);                                                                                        \
    }                                                                                                 \
  } while (0)
#define CHECK_SAYS(words) CHECK(strstr(last_error(), words) != NULL)

static uint64_t held(plimsoll_ledger ledger) {
  plimsoll_usage usage;
  CHECK(plimsoll_space_usage(ledger, PLIMSOLL_SPACE_HOST, &usage) == PLIMSOLL_STATUS_OK);
  return usage.held;
}

struct buffer {
  plimsoll_ledger ledger;
  plimsoll_handle handle;
  void *memory;
};

static void *consume(void *argument) {
  struct buffer *buffer = argument;
  memset(buffer->memory, 7, MIB);
  free(buffer->memory);
  CHECK(plimsoll_release(buffer->ledger, buffer->handle) == PLIMSOLL_STATUS_OK);
  return NULL;
}

// 16 buffers of 1 MiB through a ledger of 4 MiB: the producer waits for the bytes that the threads return.
static void buffers_are_freed_on_their_own_threads(plimsoll_ledger ledger, plimsoll_class class_) {
  enum { BUFFERS = 16 };
  pthread_t threads[BUFFERS];
  struct buffer buffers[BUFFERS];
  for (int i = 0; i < BUFFERS; i++) {
    buffers[i].ledger = ledger;
    CHECK(plimsoll_reserve(ledger, class_, MIB, PLIMSOLL_HERE("buffer"), PLIMSOLL_FOREVER, &buffers[i].handle) ==
          PLIMSOLL_STATUS_OK);
    buffers[i].memory = malloc(MIB);
    CHECK(buffers[i].memory != NULL);
    CHECK(pthread_create(&threads[i], NULL, consume, &buffers[i]) == 0);
  }
  for (int i = 0; i < BUFFERS; i++) pthread_join(threads[i], NULL);
  plimsoll_usage usage;
  CHECK(plimsoll_class_usage(ledger, class_, &usage) == PLIMSOLL_STATUS_OK);
  CHECK(usage.held == 0 && usage.peak <= 4 * MIB && usage.peak >= MIB && usage.limit == 4 * MIB);
}

static void a_reservation_is_divided(plimsoll_ledger ledger, plimsoll_class class_) {
  plimsoll_handle whole, part, other;
  uint64_t bytes;
  CHECK(plimsoll_reserve(ledger, class_, 3 * MIB, NULL, 0, &whole) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_split(ledger, whole, MIB, &part) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_split(ledger, whole, 3 * MIB, &other) == PLIMSOLL_STATUS_TOO_FEW);
  CHECK(plimsoll_shrink_to(ledger, whole, MIB) == PLIMSOLL_STATUS_OK);
  CHECK(held(ledger) == 2 * MIB);
  CHECK(plimsoll_merge(ledger, whole, whole) == PLIMSOLL_STATUS_BUSY_HANDLE);
  CHECK(plimsoll_merge(ledger, 12345, part) == PLIMSOLL_STATUS_NO_SUCH_HANDLE);
  CHECK(plimsoll_reserve(ledger, class_, MIB, NULL, 0, &other) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_merge(ledger, whole, other) == PLIMSOLL_STATUS_NOT_MERGED);
  CHECK(held(ledger) == 3 * MIB);
  CHECK(plimsoll_release(ledger, other) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_merge(ledger, whole, part) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_handle_bytes(ledger, whole, &bytes) == PLIMSOLL_STATUS_OK && bytes == 2 * MIB);
  CHECK(plimsoll_release(ledger, part) == PLIMSOLL_STATUS_SPENT_HANDLE);
  CHECK(plimsoll_release(ledger, whole) == PLIMSOLL_STATUS_OK);
  CHECK(held(ledger) == 0);
}

static void what_has_no_room_is_told_apart(plimsoll_ledger ledger, plimsoll_class class_) {
  plimsoll_handle all, more = 99;
  CHECK(plimsoll_reserve(ledger, class_, 4 * MIB, "the whole", 0, &all) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_reserve(ledger, class_, MIB, "one more", 0, &more) == PLIMSOLL_STATUS_WOULD_WAIT);
  CHECK_SAYS("held by \"the whole\" (4.00 MiB)");
  CHECK(plimsoll_reserve(ledger, class_, MIB, "one more", 1, &more) == PLIMSOLL_STATUS_TIMED_OUT);
  CHECK_SAYS("\"one more\" needs 1.00 MiB");
  CHECK(plimsoll_reserve(ledger, class_, 5 * MIB, "too large", 0, &more) == PLIMSOLL_STATUS_NEVER_FITS);
  CHECK(more == 99);
  CHECK(plimsoll_release(ledger, all) == PLIMSOLL_STATUS_OK);
}

static void a_handle_released_twice_is_named(plimsoll_ledger ledger, plimsoll_class class_) {
  plimsoll_handle handle;
  CHECK(plimsoll_reserve(ledger, class_, MIB, PLIMSOLL_HERE("staging"), 0, &handle) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_release(ledger, handle) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_release(ledger, handle) == PLIMSOLL_STATUS_SPENT_HANDLE);
  CHECK_SAYS("1.00 MiB of buffers, \"staging at ");
  CHECK_SAYS("ledger.c:");
  CHECK(held(ledger) == 0);
}

static void a_handle_never_released_is_named(plimsoll_ledger ledger, plimsoll_class class_) {
  plimsoll_handle lost, listed[4];
  size_t count = 0;
  char text[256];
  CHECK(plimsoll_reserve(ledger, class_, 2 * MIB, PLIMSOLL_HERE("lost"), 0, &lost) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_ledger_free(ledger) == PLIMSOLL_STATUS_HANDLES_OUTSTANDING);
  CHECK_SAYS("2.00 MiB of buffers, \"lost at ");
  CHECK(plimsoll_outstanding_handles(ledger, listed, 4, &count) == PLIMSOLL_STATUS_OK);
  CHECK(count == 1 && listed[0] == lost);
  CHECK(plimsoll_describe_handle(ledger, lost, text, sizeof text, NULL) == PLIMSOLL_STATUS_OK);
  CHECK(strstr(text, "lost at ") != NULL);
  CHECK(plimsoll_release(ledger, lost) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_describe_handle(ledger, lost, text, sizeof text, NULL) == PLIMSOLL_STATUS_NO_SUCH_HANDLE);
}

static void misuse_is_an_error(plimsoll_ledger ledger, plimsoll_class class_) {
  plimsoll_handle handle;
  plimsoll_ledger none;
  plimsoll_class again;
  plimsoll_limit bad = {77, MIB};
  CHECK(plimsoll_reserve(ledger, class_, MIB, NULL, 0, NULL) == PLIMSOLL_STATUS_INVALID_ARGUMENT);
  CHECK(held(ledger) == 0);
  CHECK(plimsoll_reserve(ledger, class_, MIB, "\xff", 0, &handle) == PLIMSOLL_STATUS_INVALID_ARGUMENT);
  CHECK(plimsoll_reserve(ledger, 4711, MIB, NULL, 0, &handle) == PLIMSOLL_STATUS_NO_SUCH_CLASS);
  CHECK(plimsoll_reserve(ledger, 0, MIB, NULL, 0, &handle) == PLIMSOLL_STATUS_NO_SUCH_CLASS);
  CHECK(plimsoll_reserve(0, class_, MIB, NULL, 0, &handle) == PLIMSOLL_STATUS_NO_SUCH_LEDGER);
  CHECK(plimsoll_release(ledger, 0) == PLIMSOLL_STATUS_NO_SUCH_HANDLE);
  CHECK(plimsoll_release(ledger, UINT64_MAX) == PLIMSOLL_STATUS_NO_SUCH_HANDLE);
  CHECK(plimsoll_ledger_new(NULL, 1, &none) == PLIMSOLL_STATUS_INVALID_ARGUMENT);
  CHECK(plimsoll_ledger_new(&bad, 1, &none) == PLIMSOLL_STATUS_INVALID_ARGUMENT);
  CHECK(plimsoll_class_new(NULL, PLIMSOLL_SPACE_HOST, &again) == PLIMSOLL_STATUS_INVALID_ARGUMENT);
  CHECK(plimsoll_class_new("buffers", PLIMSOLL_SPACE_HOST, &again) == PLIMSOLL_STATUS_OK && again == class_);
  CHECK(plimsoll_class_new("buffers", PLIMSOLL_SPACE_DEVICE(3), &again) == PLIMSOLL_STATUS_OK && again != class_);
  CHECK(plimsoll_reserve(ledger, again, MIB, NULL, 0, &handle) == PLIMSOLL_STATUS_NEVER_FITS);
}

int main(void) {
  plimsoll_limit limits[] = {{PLIMSOLL_SPACE_HOST, 4 * MIB}};
  plimsoll_ledger ledger;
  plimsoll_class class_;
  plimsoll_handle handle;
  CHECK(plimsoll_last_error(NULL, 0) == 1);
  CHECK(plimsoll_ledger_new(limits, 1, &ledger) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_class_new("buffers", PLIMSOLL_SPACE_HOST, &class_) == PLIMSOLL_STATUS_OK);
  buffers_are_freed_on_their_own_threads(ledger, class_);
  a_reservation_is_divided(ledger, class_);
  what_has_no_room_is_told_apart(ledger, class_);
  a_handle_released_twice_is_named(ledger, class_);
  a_handle_never_released_is_named(ledger, class_);
  misuse_is_an_error(ledger, class_);
  CHECK(plimsoll_ledger_close(ledger) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_reserve(ledger, class_, 1, NULL, 0, &handle) == PLIMSOLL_STATUS_CLOSED);
  CHECK(plimsoll_ledger_free(ledger) == PLIMSOLL_STATUS_OK);
  CHECK(plimsoll_ledger_free(ledger) == PLIMSOLL_STATUS_NO_SUCH_LEDGER);
  puts("all is well");
  return 0;
}
