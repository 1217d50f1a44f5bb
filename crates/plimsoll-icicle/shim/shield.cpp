// Runs a call and turns a C++ exception that comes out of it into a code and a text.
//
// ICICLE's C interface lets exceptions through, and an exception that reaches Rust ends the process. Between the call and this
// frame there is only a Rust function with the ABI "C-unwind", which exceptions may pass.

#include <cstddef>
#include <cstring>
#include <exception>

extern "C" int plimsoll_icicle_shield(int (*call)(void *), void *data, char *text, std::size_t len) noexcept
{
  const char *what = "an exception that is no std::exception";
  try {
    return call(data);
  } catch (const std::exception &exception) {
    const char *said = exception.what();
    std::strncpy(text, said ? said : "an exception that says nothing", len - 1);
    text[len - 1] = '\0';
    return -1;
  } catch (...) {
    std::strncpy(text, what, len - 1);
    text[len - 1] = '\0';
    return -1;
  }
}
