#include "device/disk_transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace garonne::device {
namespace {

// Large enough for the full rate of a disk, small enough that another thread's call gets in
// between.
constexpr std::int64_t most_bytes_of_call = std::int64_t{1} << 20;

}  // namespace

void transfer_all(const std::string& path, const std::string& verb, std::int64_t offset,
                  Span memory, std::int64_t granularity, const TransferCall& call) {
  std::int64_t done = 0;
  bool stuck = false;
  while (done < memory.bytes) {
    const std::int64_t wanted = std::min(memory.bytes - done, most_bytes_of_call);
    const ssize_t moved = call(memory.data + done, static_cast<std::size_t>(wanted), offset + done);
    if (moved < 0 && errno == EINTR) continue;
    const std::string what =
        fmt::format("a {} of {} bytes at byte {}", verb, wanted, offset + done);
    if (moved < 0) throw IoError(path, fmt::format("{} failed: {}", what, std::strerror(errno)));
    if (moved == 0) throw IoError(path, fmt::format("{}: the file ends there", what));
    const std::int64_t whole = moved == wanted ? moved : moved / granularity * granularity;
    // A disk that fills up moves a part of a block first and says why in the next call.
    if (whole == 0 && stuck) {
      throw IoError(path, fmt::format("{} moved {} bytes, again and again", what, moved));
    }
    stuck = whole == 0;
    done += whole;
  }
}

}  // namespace garonne::device
