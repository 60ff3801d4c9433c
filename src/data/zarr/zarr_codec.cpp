#include "data/zarr/zarr_codec.hpp"

#include <blosc.h>
#include <fmt/format.h>
#include <libdeflate.h>
#include <zstd.h>

#include <cstring>
#include <memory>

#include "base/error.hpp"

namespace garonne::data {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw IoError(path, fmt::format("the chunk is damaged: {}", what));
}

void expect_bytes(std::size_t found, std::size_t wanted, const std::string& path) {
  if (found == wanted) return;
  refuse(path, fmt::format("it holds {} bytes, and the array wants {}", found, wanted));
}

void decode_blosc(std::span<const std::byte> stored, std::span<std::byte> values,
                  const std::string& path) {
  std::size_t bytes = 0;
  if (blosc_cbuffer_validate(stored.data(), stored.size(), &bytes) != 0) {
    refuse(path, "it is no Blosc buffer, or cut short");
  }
  expect_bytes(bytes, values.size(), path);
  const int made =
      blosc_decompress_ctx(stored.data(), values.data(), values.size(), /*numinternalthreads=*/1);
  if (made < 0 || static_cast<std::size_t>(made) != values.size()) {
    refuse(path, "Blosc cannot decompress it");
  }
}

void decode_zstd(std::span<const std::byte> stored, std::span<std::byte> values,
                 const std::string& path) {
  const std::size_t made =
      ZSTD_decompress(values.data(), values.size(), stored.data(), stored.size());
  if (ZSTD_isError(made) != 0) refuse(path, fmt::format("zstd: {}", ZSTD_getErrorName(made)));
  expect_bytes(made, values.size(), path);
}

// zlib's own format or gzip's, whichever it is.
void decode_deflate(std::span<const std::byte> stored, std::span<std::byte> values,
                    const std::string& path) {
  struct Free {
    void operator()(libdeflate_decompressor* one) const { libdeflate_free_decompressor(one); }
  };
  const std::unique_ptr<libdeflate_decompressor, Free> decompressor(
      libdeflate_alloc_decompressor());
  if (decompressor == nullptr) throw InternalError("libdeflate does not start");
  const bool gzip =
      stored.size() >= 2 && stored[0] == std::byte{0x1f} && stored[1] == std::byte{0x8b};
  const auto decompress = gzip ? libdeflate_gzip_decompress_ex : libdeflate_zlib_decompress_ex;
  std::size_t taken = 0;
  std::size_t made = 0;
  switch (decompress(decompressor.get(), stored.data(), stored.size(), values.data(), values.size(),
                     &taken, &made)) {
    case LIBDEFLATE_SUCCESS:
      break;
    case LIBDEFLATE_INSUFFICIENT_SPACE:
      refuse(path, fmt::format("deflate: it holds more than the {} bytes that the array wants",
                               values.size()));
    default:
      refuse(path, "deflate: it is cut short, or its bytes are changed");
  }
  expect_bytes(made, values.size(), path);
}

// Bytes of the same place in each element stand together; a rest that is no element stays.
void unshuffle(std::span<const std::byte> shuffled, std::size_t element,
               std::span<std::byte> values) {
  const std::size_t count = values.size() / element;
  for (std::size_t byte = 0; byte < element; ++byte) {
    for (std::size_t i = 0; i < count; ++i) values[i * element + byte] = shuffled[byte * count + i];
  }
  const std::size_t whole = count * element;
  std::memcpy(values.data() + whole, shuffled.data() + whole, values.size() - whole);
}

}  // namespace

void decode_chunk(const ZarrCodec& codec, std::span<const std::byte> stored,
                  std::span<std::byte> values, const std::string& path) {
  std::vector<std::byte> shuffled(codec.shuffled_bytes > 0 ? values.size() : 0);
  const std::span<std::byte> target = shuffled.empty() ? values : std::span(shuffled);
  switch (codec.kind) {
    case ZarrCodec::Kind::None:
      expect_bytes(stored.size(), target.size(), path);
      std::memcpy(target.data(), stored.data(), target.size());
      break;
    case ZarrCodec::Kind::Blosc:
      decode_blosc(stored, target, path);
      break;
    case ZarrCodec::Kind::Zstd:
      decode_zstd(stored, target, path);
      break;
    case ZarrCodec::Kind::Deflate:
      decode_deflate(stored, target, path);
      break;
  }
  if (!shuffled.empty()) {
    unshuffle(shuffled, static_cast<std::size_t>(codec.shuffled_bytes), values);
  }
}

}  // namespace garonne::data
