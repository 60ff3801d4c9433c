// LZF as a filter of HDF5 that can be read: chunks of h5py's `compression="lzf"`.
//
// Its three parameters are h5py's revision of the filter, the version of LZF, and the bytes of a
// chunk before it was compressed.
#include "data/hdf5/hdf5_internal.hpp"

#ifdef GARONNE_HAVE_LZF
#include <lzf.h>
#endif

namespace garonne::data {

#ifdef GARONNE_HAVE_LZF

namespace {

constexpr unsigned most_lzf_bytes = 256U << 20;

// H5Z_func_t: `buffer` has `bytes` bytes that are compressed, and gets those that are not; 0 =
// failed. HDF5 takes it for granted that they are as many as a chunk has.
std::size_t decompress(unsigned flags, std::size_t parameters, const unsigned* values,
                       std::size_t bytes, std::size_t* buffer_bytes, void** buffer) {
  if ((flags & H5Z_FLAG_REVERSE) == 0 || parameters < 3) return 0;
  const unsigned chunk_bytes = values[2];
  if (chunk_bytes == 0 || chunk_bytes > most_lzf_bytes || bytes > most_lzf_bytes) return 0;
  void* const chunk = H5allocate_memory(chunk_bytes, /*clear=*/true);
  if (chunk == nullptr) return 0;
  if (lzf_decompress(*buffer, static_cast<unsigned>(bytes), chunk, chunk_bytes) != chunk_bytes) {
    H5free_memory(chunk);
    return 0;
  }
  H5free_memory(*buffer);
  *buffer = chunk;
  *buffer_bytes = chunk_bytes;
  return chunk_bytes;
}

}  // namespace

bool lzf_is_there() {
  return true;
}

void register_lzf() {
  static const H5Z_class2_t filter = {
      H5Z_CLASS_T_VERS,      lzf_filter,
      /*encoder_present=*/0,
      /*decoder_present=*/1, "lzf",      nullptr, nullptr, decompress};
  expect(H5Zregister(&filter) >= 0, "HDF5 does not take the filter LZF");
}

#else

bool lzf_is_there() {
  return false;
}

void register_lzf() {}

#endif

}  // namespace garonne::data
