// The C interface of plimsoll's ledger. Generated from crates/plimsoll-capi/src by cbindgen; do not edit.
//
// What a call does is in front of it. Three rules hold for all of them:
// - Every call that can fail returns a plimsoll_status; what went wrong is in words in plimsoll_last_error, on the
//   thread that made the call. Out parameters are written only where a call succeeds, unless it says otherwise.
// - Ledgers, classes and handles are numbers, never pointers: one that is stale, foreign or made up is an error.
// - Every call may be made on any thread.

#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define PLIMSOLL_STRING_(x) #x
#define PLIMSOLL_STRING(x) PLIMSOLL_STRING_(x)
/* A name for plimsoll_reserve that says where the bytes were reserved: PLIMSOLL_HERE("staging buffer"). */
#define PLIMSOLL_HERE(name) name " at " __FILE__ ":" PLIMSOLL_STRING(__LINE__)
/* The memory of a device, as a plimsoll_space. */
#define PLIMSOLL_SPACE_DEVICE(number) ((plimsoll_space)(PLIMSOLL_SPACE_DEVICES + (number)))

// Host memory, pageable and pinned together.
#define PLIMSOLL_SPACE_HOST 0

// The part of host memory that is pinned; what is pinned counts in host memory too.
#define PLIMSOLL_SPACE_PINNED 1

// The memory of device 0; the devices that follow have the numbers that follow, up to device 65535.
#define PLIMSOLL_SPACE_DEVICES 65536

// A time-out that never comes.
#define PLIMSOLL_FOREVER UINT64_MAX

// How a call ended.
typedef enum {
  // It did what it says.
  PLIMSOLL_STATUS_OK = 0,
  // A pointer is null or not aligned, a text is not UTF-8, or a number is out of its range.
  PLIMSOLL_STATUS_INVALID_ARGUMENT = 1,
  // There is no such ledger: it was freed, or never made.
  PLIMSOLL_STATUS_NO_SUCH_LEDGER = 2,
  // There is no such class.
  PLIMSOLL_STATUS_NO_SUCH_CLASS = 3,
  // The ledger has not given out such a handle.
  PLIMSOLL_STATUS_NO_SUCH_HANDLE = 4,
  // The handle was released before: somebody returns the same bytes twice.
  PLIMSOLL_STATUS_SPENT_HANDLE = 5,
  // Another thread is using the handle in this moment.
  PLIMSOLL_STATUS_BUSY_HANDLE = 6,
  // There is no room now, and the call was not to wait.
  PLIMSOLL_STATUS_WOULD_WAIT = 7,
  // There was no room until the time was up.
  PLIMSOLL_STATUS_TIMED_OUT = 8,
  // It can never be served: it is above the limit, or the ledger has no limit for the space.
  PLIMSOLL_STATUS_NEVER_FITS = 9,
  // The ledger was closed.
  PLIMSOLL_STATUS_CLOSED = 10,
  // The reservation holds fewer bytes than were asked of it.
  PLIMSOLL_STATUS_TOO_FEW = 11,
  // The reservations are of different classes or owners.
  PLIMSOLL_STATUS_NOT_MERGED = 12,
  // The ledger was not freed, because handles are still out.
  PLIMSOLL_STATUS_HANDLES_OUTSTANDING = 13,
  // A fault in this library; the ledger's books are still in order.
  PLIMSOLL_STATUS_PANICKED = 14,
} plimsoll_status;

// A physical place with a capacity in bytes.
typedef uint32_t plimsoll_space;

// The limit of one space.
typedef struct {
  // The space.
  plimsoll_space space;
  // Its limit in bytes.
  uint64_t bytes;
} plimsoll_limit;

// A ledger. Never zero.
typedef uint64_t plimsoll_ledger;

// A named kind of buffer in one space. Never zero.
typedef uint32_t plimsoll_class;

// A reservation. Never zero; never given out twice.
typedef uint64_t plimsoll_handle;

// How much is held, in bytes.
typedef struct {
  // Held now.
  uint64_t held;
  // The most that was ever held at once.
  uint64_t peak;
  // The limit that holds now; of a class, that of its space.
  uint64_t limit;
} plimsoll_usage;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Writes what went wrong in this thread's last call that failed, as a text that ends with a zero byte and is cut off
// where `size` bytes are too few. Returns how many bytes the whole text takes with its zero byte; with a null `text`
// nothing else happens. Calls that succeed leave the text as it is; before the first failure it is empty.
//
// # Safety
//
// `text` is null or points to `size` bytes that may be written.
size_t plimsoll_last_error(char *text,
                           size_t size);

// Makes a ledger with the limits of `count` spaces. A space that is not named has no room at all.
//
// # Safety
//
// `limits` points to `count` limits, and `ledger` to where the new ledger's number is written.
plimsoll_status plimsoll_ledger_new(const plimsoll_limit *limits, size_t count, plimsoll_ledger *ledger);

// Refuses everything new from now on; what waits is refused as well. Handles that are out stay good.
plimsoll_status plimsoll_ledger_close(plimsoll_ledger ledger);

// Frees a ledger. While handles of it are out, or other calls with it are in progress (a wait, say: close it to end those),
// it is not freed: PLIMSOLL_STATUS_HANDLES_OUTSTANDING, and the last error names them. A ledger that came from Rust stays alive
// there.
plimsoll_status plimsoll_ledger_free(plimsoll_ledger ledger);

// The class of this name in this space; the same number for the same name and space. Classes belong to no ledger and
// are never freed; at most 4096 can be made.
//
// # Safety
//
// `name` is a text that ends with a zero byte, and `class` points to where the number is written.
plimsoll_status plimsoll_class_new(const char *name,
                                   plimsoll_space space,
                                   plimsoll_class *class_);

// Reserves bytes, waiting at most `timeout_ms` milliseconds for them: 0 to not wait, PLIMSOLL_FOREVER for as long as
// it takes. `who` is named in reports and errors and may be null; PLIMSOLL_HERE makes one.
//
// # Safety
//
// `who` is null or a text that ends with a zero byte, and `handle` points to where the number is written.
plimsoll_status plimsoll_reserve(plimsoll_ledger ledger,
                                 plimsoll_class class_,
                                 uint64_t bytes,
                                 const char *who,
                                 uint64_t timeout_ms,
                                 plimsoll_handle *handle);

// Takes `bytes` off a reservation into one of their own.
//
// # Safety
//
// `part` points to where the new handle is written.
plimsoll_status plimsoll_split(plimsoll_ledger ledger,
                               plimsoll_handle handle,
                               uint64_t bytes,
                               plimsoll_handle *part);

// Moves all bytes of `other` into `into`, of the same class and split off the same reservation; `other` is spent by
// that. Where the call fails both stay as they were.
plimsoll_status plimsoll_merge(plimsoll_ledger ledger,
                               plimsoll_handle into,
                               plimsoll_handle other);

// Returns everything of a reservation above `bytes`.
plimsoll_status plimsoll_shrink_to(plimsoll_ledger ledger, plimsoll_handle handle, uint64_t bytes);

// Returns the bytes of a reservation. Call it after the memory was freed, once, on any thread.
plimsoll_status plimsoll_release(plimsoll_ledger ledger, plimsoll_handle handle);

// How many bytes a reservation holds.
//
// # Safety
//
// `bytes` points to where the number is written.
plimsoll_status plimsoll_handle_bytes(plimsoll_ledger ledger, plimsoll_handle handle, uint64_t *bytes);

// How much is held in a space, of all classes.
//
// # Safety
//
// `usage` points to where the answer is written.
plimsoll_status plimsoll_space_usage(plimsoll_ledger ledger, plimsoll_space space, plimsoll_usage *usage);

// How much is held of a class.
//
// # Safety
//
// `usage` points to where the answer is written.
plimsoll_status plimsoll_class_usage(plimsoll_ledger ledger, plimsoll_class class_, plimsoll_usage *usage);

// Writes the handles that are out, oldest first, as many as there is `room` for, and to `count` how many there are.
//
// # Safety
//
// `handles` points to room for `room` handles (it may be null where that is 0), and `count` to where their number is
// written.
plimsoll_status plimsoll_outstanding_handles(plimsoll_ledger ledger,
                                             plimsoll_handle *handles,
                                             size_t room,
                                             size_t *count);

// Writes in words what a handle that is out stands for: bytes, class and who reserved them. The text ends with a zero
// byte and is cut off where `size` bytes are too few; to `needed`, which may be null, goes what the whole takes.
//
// # Safety
//
// `text` is null or points to `size` bytes, and `needed` is null or points to where the number is written.
plimsoll_status plimsoll_describe_handle(plimsoll_ledger ledger,
                                         plimsoll_handle handle,
                                         char *text,
                                         size_t size,
                                         size_t *needed);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLIMSOLL_H */
