// All bytes of a block to or from a file, in as many calls to the system as that takes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "device/device.hpp"

namespace garonne::device {

// As pwrite and pread: bytes moved, or -1 and errno.
using TransferCall = std::function<ssize_t(std::byte* data, std::size_t bytes, off_t offset)>;

// `offset` and `memory` are multiples of `granularity`; every call is, too: after a call that
// moved a part, the next one begins at the last whole block. A call that was interrupted is made
// again. IoError with the path, `verb` ("write", "read"), bytes and offset for any other failure,
// for a file that ends, and for calls that do not get on.
void transfer_all(const std::string& path, const std::string& verb, std::int64_t offset,
                  Span memory, std::int64_t granularity, const TransferCall& call);

}  // namespace garonne::device
