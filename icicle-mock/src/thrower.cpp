// Throws what ICICLE throws.

#include <stdexcept>

extern "C" void plimsoll_icicle_mock_throw(const char *what, bool odd)
{
  if (odd) { throw 7; }
  throw std::runtime_error(what);
}
